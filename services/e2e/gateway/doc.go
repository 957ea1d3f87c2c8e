// Package gateway tests the gateway as clients and agents meet it: over its two
// listeners, with the real log, session service and policy service behind it. What
// the workload and runner services would append is appended as their NATS users.
package gateway
