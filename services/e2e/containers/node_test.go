//go:build containers

package containers_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

// recipe is how a container is made.
type recipe struct {
	image string
	// entrypoint, if set, takes the place of the image's.
	entrypoint, cmd []string
	env             map[string]string
	// files are copied in before the start, by their path.
	files map[string]string
	// port is published on loopback, at a port that stays the same over a restart; 0
	// publishes none.
	port int
	// confined, if set, changes what the container may do.
	confined func(*container.HostConfig)
}

// node is a container of the installation.
type node struct {
	t      testing.TB
	name   string
	docker *testcontainers.DockerClient
	c      *testcontainers.DockerContainer
	// addr is where its port is published.
	addr string
}

// run makes and starts a container, whose name others find it under.
func (in *installation) run(ctx context.Context, name string, r recipe) (*node, error) {
	n := &node{t: in.t, name: name, docker: in.docker}
	options := []testcontainers.ContainerCustomizer{
		tcnetwork.WithNetwork([]string{name}, in.network),
		testcontainers.WithEnv(r.env),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.Init = new(true)
			h.SecurityOpt = []string{"no-new-privileges:true"}
			if r.confined != nil {
				r.confined(h)
			}
		}),
	}
	if r.entrypoint != nil {
		options = append(options, testcontainers.WithEntrypoint(r.entrypoint...))
	}
	if r.cmd != nil {
		options = append(options, testcontainers.WithCmd(r.cmd...))
	}
	for path, contents := range r.files {
		options = append(options, testcontainers.WithFiles(testcontainers.ContainerFile{
			Reader: strings.NewReader(contents), ContainerFilePath: path, FileMode: 0o644,
		}))
	}
	if r.port != 0 {
		var err error
		if n.addr, err = freeAddr(ctx); err != nil {
			return nil, err
		}
		inside, outside := network.MustParsePort(fmt.Sprintf("%d/tcp", r.port)), netip.MustParseAddrPort(n.addr)
		options = append(options, testcontainers.WithExposedPorts(inside.String()), testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = network.PortMap{inside: {{HostIP: outside.Addr(), HostPort: strconv.Itoa(int(outside.Port()))}}}
		}))
	}
	var err error
	if n.c, err = testcontainers.Run(ctx, r.image, options...); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	if n.c != nil {
		in.mu.Lock()
		in.nodes[name] = n
		in.mu.Unlock()
	}
	return n, err
}

// freeAddr gives a port of loopback that is free now.
func freeAddr(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// kill is `docker kill`: nothing in the container has a say.
func (n *node) kill(ctx context.Context) {
	n.t.Helper()
	if _, err := n.docker.ContainerKill(ctx, n.c.GetContainerID(), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		n.t.Fatalf("kill %s: %v", n.name, err)
	}
}

// start is `docker start` after a kill, which an orchestrator does.
func (n *node) start(ctx context.Context) {
	n.t.Helper()
	if _, err := n.docker.ContainerStart(ctx, n.c.GetContainerID(), client.ContainerStartOptions{}); err != nil {
		n.t.Fatalf("start %s: %v", n.name, err)
	}
}

// pause is `docker pause`: every process stands still, every connection stays open.
func (n *node) pause(ctx context.Context) {
	n.t.Helper()
	if _, err := n.docker.ContainerPause(ctx, n.c.GetContainerID(), client.ContainerPauseOptions{}); err != nil {
		n.t.Fatalf("pause %s: %v", n.name, err)
	}
}

// unpause ends a pause.
func (n *node) unpause(ctx context.Context) {
	n.t.Helper()
	if _, err := n.docker.ContainerUnpause(ctx, n.c.GetContainerID(), client.ContainerUnpauseOptions{}); err != nil {
		n.t.Fatalf("unpause %s: %v", n.name, err)
	}
}

// said is what the container has written.
func (n *node) said(ctx context.Context) string {
	logs, err := n.c.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, err := io.ReadAll(logs)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// ended waits for a container that does one thing, and wants it done.
func (n *node) ended(ctx context.Context) error {
	wait := n.docker.ContainerWait(ctx, n.c.GetContainerID(), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case r := <-wait.Result:
		if r.StatusCode != 0 {
			return fmt.Errorf("%s ended with %d: %s", n.name, r.StatusCode, n.said(ctx))
		}
		return nil
	case err := <-wait.Error:
		return fmt.Errorf("%s: %w", n.name, err)
	}
}

// with adds to an environment.
func with(env map[string]string, more map[string]string) map[string]string {
	out := maps.Clone(env)
	maps.Copy(out, more)
	return out
}
