// Command load puts the whole of Holdfast under an open-loop load: visits begin at a
// rate, whether or not the ones before have ended, and every time is counted from when
// the visit was to begin, so that a server that falls behind can't hide it.
//
// A visit is a session's whole life as its users live it:
//
//	create ─▶ viewer attaches ─▶ ready ─▶ message ─▶ answer read
//	       ─▶ message that needs a person ─▶ prompt seen ─▶ approved ─▶ answer read ─▶ terminate ─▶ ended
//
// It runs against everything as `holdfast dev` starts it, in this process: real NATS
// with every append on the disk, real Postgres, real sandboxes with the shell agent.
//
//	go run ./services/e2e/load                         rising rates, until p99 of the commands passes the limit
//	go run ./services/e2e/load -soak 20m -rate 2       one rate for so long; says how memory moves
//	go run ./services/e2e/load -short                  that it works; its figures mean nothing
package main
