// Package verbs holds what clients' commands say: the verbs of each service on
// NATS request/reply (cmd.<service>.<tenant>.<verb>) with the bodies and results
// that go with them. Services and the gateway share these shapes and nothing
// else; who calls and for which session stands in command.Request.
package verbs
