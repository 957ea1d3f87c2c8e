package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// This program is also what it starts: a process full of viewers, and the agent
// inside of a sandbox. The first argument says which.
var children = map[string]func(context.Context) error{
	"as-viewers": viewersChild,
	"as-agent":   agentChild,
}

// child runs this process as one of the children, if that is what it is.
func child(ctx context.Context, args []string) (code int, mine bool) {
	if len(args) == 0 {
		return 0, false
	}
	run, mine := children[args[0]]
	if !mine {
		return 0, false
	}
	if err := run(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, args[0]+":", err)
		return 1, true
	}
	return 0, true
}

// process is a child that runs.
type process struct {
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

// startChild starts one. It ends when its input is closed, or with ctx.
func startChild(ctx context.Context, name string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, name)}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReaderSize(out, 1<<16)
	return p, p.cmd.Start()
}

// say writes a line.
func (p *process) say(line []byte) error {
	_, err := p.in.Write(append(line, '\n'))
	return err
}

// hear reads a line.
func (p *process) hear() ([]byte, error) { return p.out.ReadBytes('\n') }

// stop ends it and waits.
func (p *process) stop() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }
