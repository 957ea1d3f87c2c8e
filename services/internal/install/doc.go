// Package install makes what the services find: the streams EVENTS, BLOBS, OUTPUT
// and TRANSIT, a durable consumer for each service that reacts, the bucket PARKED, and the log's
// first message, its genesis. It runs as NATS user installer, whose rights no
// service has ('holdfast install'; dev does it itself).
//
// [Run] can be repeated: what is there is verified and left alone, but for a limit of
// EVENTS' and BLOBS' bytes, which is raised where more is asked for. It first looks at
// everything and changes nothing when anything is wrong:
//
//   - a stream, consumer or bucket that is there and configured otherwise is a
//     [*DifferentError], which lists each difference;
//   - an EVENTS whose first message is not a genesis, because it was emptied or
//     written to by something else, is a [*GenesisError]. A genesis is written only
//     to a stream that never held a message.
//
// # The streams
//
// EVENTS keeps decisions for ever: no limit of age or number, none of bytes but one
// that refuses more, deleting and
// purging denied, and none of the features (rollup, TTL, schedules, counters,
// direct get) by which a header could undo that or a follower answer stale.
// BLOBS keeps the same way what is too large for a message of EVENTS, and each of its
// subjects is written once. OUTPUT keeps what agents stream for a bounded age and size,
// oldest out first. TRANSIT keeps large commands and answers for minutes; when it is
// full it refuses more.
//
// # The consumers
//
// One for a service, on sessions' subjects, headers only: a message just names a
// session. Explicit acknowledgement, delivered again for ever with a growing pause,
// and never removed for inactivity: a service that was down for a week finds its
// backlog.
package install
