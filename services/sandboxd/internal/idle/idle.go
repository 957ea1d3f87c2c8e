// Package idle is `sandboxd idle`, the agent's container of a Pod whose image has no
// program that stays: a code interpreter's, in which only what a caller sends is run.
package idle

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Run waits until it is asked to end, and returns the exit code 0. As a container's first
// process it gets only those signals that it takes.
func Run() int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM, unix.SIGINT)
	<-asked
	return 0
}
