// Package broker runs NATS inside a process and says who may do what on any NATS.
//
// [Start] embeds a nats-server with JetStream on file storage: for `holdfast dev`
// and for tests. In production NATS is its own deployment; [Conf] writes the same
// users and permissions, from the same table, as the authorization block of its
// configuration. [Connect] is how every service connects to either.
//
// # Users
//
// Each service has a user, and the table in permissions.go says what it may do:
//
//	             EVENTS                        OUTPUT          commands
//	session      ev.*.s.*                      -               answers its own
//	workload     ev.*.s.*, .runtime.*, .sweep.*  -               answers its own; tells hosts what to do, answers them
//	policy       ev.*.s.* and ev.*.policy.*    -               answers its own
//	runner       ev.*.s.*                      writes, reads   answers its own; locate, note-activity, propose
//	gateway      reads all                     reads all       sends all, pings services
//	projector    reads all                     reads all       -
//	host         -                             -               - (answers and asks the workload service)
//	installer    genesis                       -               -
//
// The four that decide read single messages of EVENTS and have their own durable
// consumer, which the installer made. Only the installer makes, changes, purges or
// removes streams and consumers; readers make ordered consumers, never under the
// name of a durable one.
//
// NATS can't tell types of event apart on one subject: there the fold refuses what
// isn't its service's.
//
// # What permissions can't do
//
// NATS checks where a user publishes, not where it wants the reply. Who may ask
// JetStream anything may name a subject of EVENTS as the reply, and the server then
// stores its own answer there (tried with 2.15). That answer is never an envelope and
// a copied envelope brings its expected sequence along, which the stream refuses, so
// nothing can be forged; but it breaks the session's chain, which every fold
// notices: problem log-faulted. Our own commands are answered only to inboxes
// (package command). Against a hostile process with a service's password this is no wall.
//
// # Denials
//
// The server answers a denied publish with an asynchronous "Permissions Violation",
// and the request that it belonged to looks like a timeout. [Connect] therefore logs
// each and hands it to a callback.
package broker
