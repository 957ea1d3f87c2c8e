// Package cli tests the built binary as people type it: starting and stopping dev,
// what stands in its way, and every command of a client, in words and in JSON.
package cli
