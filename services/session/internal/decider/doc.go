// Package decider decides the session service's commands: the desired life of a
// session. Every function is pure: state, command and time in, events or a
// refusal (*problem.Error) out. The state and its fold are events/session's.
package decider
