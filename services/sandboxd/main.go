// Command sandboxd is in every sandbox. It is one small binary with several
// duties, named by its first argument:
//
//	sandboxd jail-init …     builds a sandbox's namespaces from inside and goes on as supervise
//	sandboxd supervise       stands between the agent and everybody else, on a host
//	sandboxd jail-agent …    the last restrictions before an agent's own program
//	sandboxd sidecar         stands between the agent and everybody else, in a Pod
//	sandboxd install PATH    copies the program to where a Pod's containers see it
//	sandboxd exec-agent -- … the agent's container of a Pod, for the adapter exec
//	sandboxd idle            the agent's container of a Pod whose image has nothing that stays
//	sandboxd shell-agent     the runtime `shell`: an agent that runs commands
//	sandboxd probe           says what can be reached from a sandbox and what holds it
//
// They are started by the workload driver, by Kubernetes and by each other, not by people.
// What may be imported here is listed in a test: whatever is in a sandbox is
// within the agent's reach.
package main

import (
	"fmt"
	"os"

	"github.com/holdfast-io/holdfast/services/sandboxd/internal/execagent"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/idle"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/install"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/jail"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/probe"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/shellagent"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/sidecar"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/supervise"
)

// exitUsage is the code for a call that makes no sense.
const exitUsage = 64

func main() { os.Exit(dispatch(os.Args[1:])) }

func dispatch(args []string) int {
	if len(args) == 0 {
		return usage()
	}
	switch args[0] {
	case "jail-init":
		return jail.Init(args[1:])
	case "jail-agent":
		return jail.Agent(args[1:])
	case "supervise":
		return supervise.Run()
	case "sidecar":
		return sidecar.Run()
	case "install":
		return install.Run(args[1:])
	case "exec-agent":
		return execagent.Run(args[1:])
	case "idle":
		return idle.Run()
	case "shell-agent":
		return shellagent.Run(args[1:])
	case "probe":
		return probe.Run()
	}
	return usage()
}

func usage() int {
	fmt.Fprintln(os.Stderr, "usage: sandboxd jail-init|supervise|jail-agent|sidecar|install|exec-agent|idle|shell-agent|probe …")
	return exitUsage
}
