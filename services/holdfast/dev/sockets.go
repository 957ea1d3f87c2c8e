package dev

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// AgentSocket is the name of the agents' listener in its directory.
const AgentSocket = "agent.sock"

// relaySocket is where the host takes connections to sandboxes.
const relaySocket = "relay.sock"

// ListenForAgents makes the unix socket that sandboxes reach. They run under other
// users, so it is writable by all; its directory, which it has for itself, is what they
// are shown of the host.
func ListenForAgents(path string) (net.Listener, error) { return listenUnix(path, 0o755, 0o666) }

// listenUnix makes a unix socket, in place of one that was left there, in a directory
// that is made if need be. A path that is too long for a socket's address is reached
// through the directory's descriptor.
func listenUnix(path string, dirMode, mode os.FileMode) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return nil, err
	}
	if err := ignoreMissing(os.Remove(path)); err != nil {
		return nil, err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), filepath.Base(path)), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the address is of a descriptor that is closed by then
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
