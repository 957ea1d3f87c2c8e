package broker

// Permissions lets the test of Conf compare.
var Permissions = permissions
