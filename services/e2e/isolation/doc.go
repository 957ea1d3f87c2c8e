// Package isolation holds the sandboxes of the whole program to what
// docs/isolation.md says that they keep from whom: an agent that attacks (hostile)
// has to fail at everything in a sandbox, and the same attempts have to succeed
// without isolation, so that they are known to try something.
package isolation
