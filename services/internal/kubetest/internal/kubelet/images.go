package kubelet

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Image is what a container image is here: programs of this machine under the names
// that they have in the image.
type Image struct {
	// Entrypoint is the command of a container that names none.
	Entrypoint []string
	// Programs are files of this machine by the base name of a command's first
	// element: {"sandboxd": "/tmp/bin/sandboxd"} runs /usr/local/bin/sandboxd, too.
	// What is on a volume needs no entry.
	Programs map[string]string
	// Env are NAME=value pairs for what a container's own environment leaves open, as
	// ENV in a Dockerfile.
	Env []string
	// Argv, if set, decides alone what runs. Its elements are taken as they are.
	Argv func(Container) ([]string, error)
}

// Container is what an image learns about the container that is about to start.
type Container struct {
	Namespace, Pod, UID, Name string
	// Command and Args are the container's, with volumes and addresses replaced.
	Command, Args []string
	// Env are NAME=value pairs, replaced likewise.
	Env []string
	// PodIP is the Pod's address, Loopback the one that stands in for 127.0.0.1.
	PodIP, Loopback string
	// Mounts are real folders (or files) by mountPath.
	Mounts map[string]string
	// Restarts counts how often the container has been started before.
	Restarts int
}

// argv is the command line of a container.
func (i Image) argv(c Container) ([]string, error) {
	if i.Argv != nil {
		return i.Argv(c)
	}
	argv := c.Command
	if len(argv) == 0 {
		argv = i.Entrypoint
	}
	if len(argv) == 0 {
		return nil, errors.New("no command specified")
	}
	argv = append(append([]string(nil), argv...), c.Args...)
	if program, ok := i.Programs[filepath.Base(argv[0])]; ok && !mounted(argv[0], c.Mounts) {
		argv[0] = program
		return argv, nil
	}
	if !mounted(argv[0], c.Mounts) {
		return nil, fmt.Errorf("exec: %q: executable file not found in $PATH", argv[0])
	}
	return argv, nil
}

// mounted says whether path, replaced already, lies on a volume.
func mounted(path string, mounts map[string]string) bool {
	for _, dir := range mounts {
		if path == dir || len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == '/' {
			return true
		}
	}
	return false
}
