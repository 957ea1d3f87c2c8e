// Package life tests a session's life on the whole program: every move and every
// deadline, with real sandboxes, and what is left of a session when it is over.
package life
