// Command bench measures what Holdfast costs over the least that anything could
// cost that does the same. Every figure is a ratio to a named baseline, taken in
// the same run, on the same servers, in turns:
//
//	round 1   ours base ours base …  ┐
//	round 2   ours base ours base …  ├─▶ one ratio a round ─▶ median, least and most
//	…                                ┘
//
// A ratio travels between machines as an absolute time does not, and what else
// the machine does meanwhile meets both sides. Absolute values are printed beside
// it, pooled over all rounds, for the reader's sense of scale only.
//
//	command     a request → appended event   against a compare-and-set publish of the same bytes
//	throughput  the same, 64 sessions writing
//	cluster     the same on three replicas
//	remote      the same over NATS and over HTTP
//	ready       create → ready, warm and cold  against starting the bare process
//	flow        an agent's events → a viewer against a bare SSE pipe
//	projector   EVENTS → Postgres            against COPY of the same rows into the same tables
//	answer      a decision → the agent's next turn  against a NATS request and its reply
//	load        a session that nothing has in memory  against reading its bytes
//	timeline    a page of a long timeline    against the bare SELECT
//	startup     dev on many sessions         against dev on none
//	viewers     event → 2,000 WebSockets     against a loop over the same sockets in memory
//
// Nothing is mocked: NATS, Postgres and the services are those of `holdfast dev`,
// with every append on the disk before it is acknowledged.
//
//	go run ./services/e2e/bench              all, as text
//	go run ./services/e2e/bench -md          as the tables of docs/benchmarks.md
//	go run ./services/e2e/bench -into docs/benchmarks.md
//	                                         the same, written there
//	go run ./services/e2e/bench -run viewers one
//	go run ./services/e2e/bench -short       that it works; its figures mean nothing
package main
