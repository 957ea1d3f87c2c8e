// Package driver is what the workload service needs of a place that runs
// sandboxes: a host (the local driver) or a Kubernetes cluster (agent-sandbox).
//
// A sandbox belongs to one generation of one session, named by a [Ref]. It has
// an identity that lasts (SandboxUID) and, each time it runs, one that is never
// used again (PodUID), which is what its callers fence on:
//
//	          Claim                    Suspend
//	(none) ──────────▶ running(pod 1) ─────────▶ suspended
//	                      │                          │ Resume
//	                      │ died by itself           ▼
//	                      ▼                     running(pod 2) …
//	                    lost ──Release──▶ (none) ◀──Release── (from any state)
//
// Every effect carries the intent, the session's n that wants it. A driver
// keeps the newest intent it has acted on, also after a release, and refuses an
// older one with [ErrOlderIntent]: a command that was delayed can't undo a
// later one. Repeating the newest is how a caller makes sure: all operations
// are idempotent.
//
// Drivers decide nothing about a session's life. They report what exists
// ([Driver.List]) and what ended by itself ([Driver.Events]); the events only
// hasten what a sweep over the list would find as well.
//
// The package drivertest holds the suite that every driver has to pass.
package driver
