// Package admission has the tests of package podtemplate against a real API server. They
// are apart, since what they link takes long: the golden files are what they read.
package admission
