// Package processes runs the services as a production does: each a process of the
// built binary by `holdfast serve`, with nothing but its own password on a NATS that
// `holdfast install` prepared.
package processes
