// Package brake keeps the log from filling its storage to the last byte: at 85 %
// only what ends something, or records what has already happened, is still
// appended, and everything else is refused with an *eventlog.NoRoomError, which the
// API answers with 503 storage-low. So there is room left to end what runs, and to
// write down how it ended.
//
//	            85 % of any measure           under 80 % of all
//	open ─────────────────────────▶ braking ────────────────────▶ open
//
// The gap keeps a log that hovers at the limit from switching with each message.
//
// Where there is no room for even that, everything is refused, for good and at once,
// before it is sent: NATS itself would leave it open on a replicated stream.
//
// # Where it sits
//
// [Brake.Log] puts it before the log itself, where each service's decisions come
// together, clients' and a service's own: what passes is told by the types of the
// events that a decision would append, so that no decider has to know of it.
//
// # What is measured
//
// What NATS reports, the same for every process: the size of the streams EVENTS and
// BLOBS against their limits, and the account's storage against its own ([JetStream]). Where
// the log's files are on this machine, their file system too ([Disk]). What can't be
// measured keeps its last value: a brake that comes off because nobody answers would
// come off on the worst of days.
package brake
