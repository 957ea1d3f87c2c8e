// Package replay tests, on the whole program, that what a session was is told the
// same wherever it is asked for: live, in pages, replayed, as of any moment, and in
// the audit.
package replay
