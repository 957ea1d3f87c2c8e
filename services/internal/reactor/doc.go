// Package reactor makes a service act on events: it brings each session that
// something happened to from what is observed to what is wanted.
//
// A message only names a key, tenant and session. Its header says which types of
// event it holds, which decides whether the service is interested; the consumer
// delivers headers only. The service's Settle reloads the session, compares
// desired with observed, acts and appends, or does nothing. It is called
//
//   - for one key by one goroutine at a time, in this process (between processes
//     the session's compare-and-set decides);
//   - again when something named the key while it ran;
//   - again after a failure, between 50 ms and 5 s later, with jitter;
//   - again later, and never parked, where it says that nothing about the key stands
//     in the way (LaterError);
//   - with ten failures in a row seldom, every RetryParkedEvery: the key is parked, in
//     the key-value bucket PARKED, and the others go on. It is listed there until it
//     settles, someone retries it, or a message comes that Unparks names.
//
// # Life of a key
//
//	        message, Enqueue, sweep, timer                settled, nothing new
//	(none) ───────────────────────────────▶ ready ──▶ running ──────────────▶ (none)
//	                                          ▲          │ │
//	            named meanwhile, or           └──────────┘ │ tenth failure
//	            failed and backed off                      ▼
//	                            ◀── retry, Unparks ── parked, tried seldom
//
// # Acknowledgement
//
// A key holds one message, its newest, unacknowledged until the key is settled or
// parked; an older one is acknowledged when a newer one of the same key replaces
// it. That is as safe as holding all: after a crash the newest is delivered again,
// and it names the same key. So a backlog of a week costs memory for its keys, not
// for its messages. While a message is held, in-progress is sent in a third of the
// consumer's time to acknowledge. At a clean end what is held is handed back, and
// is delivered at once to whoever is there.
//
// # Sweep
//
// At the start and every SweepEvery the keys that Unsettled lists are enqueued.
// It repairs what no message names any more: a crash between an acknowledged
// message and the next wish, a timer that died with its process.
package reactor
