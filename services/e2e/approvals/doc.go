// Package approvals tests, on the whole program, that a person is asked, sees
// exactly what will run, and that the answer is what happens: once, whoever answers,
// wherever, and whatever slept or was restarted meanwhile.
package approvals
