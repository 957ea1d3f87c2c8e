// Package cli is what people type: the client's commands of holdfast, over the
// public API like any other client. Output is for people by default, `-o json` for
// machines. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused (a problem of
// 4xx), 4 not reachable or not ready.
package cli
