package jail

import (
	"os/exec"
)

// Exit codes of the stages, besides those of the process that they start.
const (
	// ExitSetup says that the jail couldn't be built; stderr says what failed.
	ExitSetup = 125
	// ExitExec says that the jail stands but its program can't be executed.
	ExitExec = 126
)

// AgentSpec is what [AgentCommand] needs to know to start an agent.
type AgentSpec struct {
	// Isolation is sandboxapi.Boot.Isolation: "namespaces", or "none" for a plain
	// process in a process group of its own.
	Isolation string `json:"isolation"`
	// Argv is the command; Argv[0] is a path, or a name looked up in Env's PATH.
	Argv []string `json:"argv"`
	// Env is the agent's whole environment ("K=V").
	Env []string `json:"-"`
	// Workspace is the agent's working directory, the only one besides /tmp and
	// /dev/shm that it can write.
	Workspace string `json:"workspace"`
	// MaxMemoryBytes bounds the address space of each process; 0 is no bound.
	MaxMemoryBytes int64 `json:"maxMemoryBytes,omitempty"`
	// MaxProcs bounds processes and threads; 0 is no bound.
	MaxProcs int64 `json:"maxProcs,omitempty"`
}

// AgentCommand returns the unstarted command that runs an agent in its jail.
// Its process leads a process group: kill -PID ends an agent without isolation
// with all it started; in namespaces killing the process itself is enough.
func AgentCommand(spec AgentSpec) *exec.Cmd { return agentCommand(spec) }

// Agent is `sandboxd jail-agent`: the last stage before the agent. It returns
// the exit code for the process, the agent's own when the agent was started.
func Agent(args []string) int { return runAgent(args) }

// Init is `sandboxd jail-init`: the first process inside the new namespaces. On
// success it doesn't return; otherwise it returns the exit code for the process.
func Init(args []string) int { return runInit(args) }
