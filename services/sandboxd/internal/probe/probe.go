// Package probe is `sandboxd probe`: it looks, from inside a sandbox that is made for
// just that, at where one gets and what holds the process (package sandboxprobe), writes
// it down, and ends.
package probe

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/services/internal/sandboxprobe"
)

// tokenFile is where Kubernetes puts a service account's token for its API.
const tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// Run looks and answers; its result is the exit code. What it finds is no failure.
func Run() int {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sandboxd probe:", err)
		return 1
	}
	return 0
}

func run() error {
	var targets []sandboxprobe.Target
	if err := json.Unmarshal([]byte(os.Getenv(sandboxprobe.EnvTargets)), &targets); err != nil {
		return fmt.Errorf("%s: %w", sandboxprobe.EnvTargets, err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	report := sandboxprobe.Report{Attempts: try(targets), UID: os.Getuid()}
	held(&report, string(status))
	version, err := os.ReadFile("/proc/version")
	if err != nil {
		return err
	}
	report.Kernel, _, _ = strings.Cut(string(version), "\n")
	_, err = os.Stat(tokenFile)
	report.KubernetesToken = !errors.Is(err, fs.ErrNotExist)
	answer, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return os.WriteFile(os.Getenv(sandboxprobe.EnvAnswer), answer, 0o600)
}

// try tries all targets at once.
func try(targets []sandboxprobe.Target) []sandboxprobe.Attempt {
	attempts := make([]sandboxprobe.Attempt, len(targets))
	var wg sync.WaitGroup
	for i, target := range targets {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), sandboxprobe.DialWithin)
			defer cancel()
			where, err := reach(ctx, target.Address)
			attempts[i] = sandboxprobe.Attempt{Target: target, Tried: !errors.Is(err, errUnknown), Reached: err == nil, Detail: where}
			if err != nil {
				attempts[i].Detail = err.Error()
			}
		})
	}
	wg.Wait()
	return attempts
}

// errUnknown says that there is nothing to try: the Pod wasn't told an address.
var errUnknown = errors.New("the Pod wasn't told of any")

// reach connects to an address, and says to which.
func reach(ctx context.Context, address string) (string, error) {
	switch address {
	case sandboxprobe.KubernetesAPI:
		host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if host == "" || port == "" {
			return "", errUnknown
		}
		address = net.JoinHostPort(host, port)
	case sandboxprobe.ClusterDNS:
		conf, err := os.ReadFile("/etc/resolv.conf")
		if err != nil {
			return "", err
		}
		server := nameserver(string(conf))
		if server == "" {
			return "", errUnknown
		}
		return server, resolve(ctx, net.JoinHostPort(server, "53"))
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	return address, c.Close()
}

// nameserver is the first one of a resolv.conf.
func nameserver(conf string) string {
	for line := range strings.Lines(conf) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "nameserver" {
			return f[1]
		}
	}
	return ""
}

// question asks for the root's name servers (RFC 1035): any server has an answer, if
// only a refusal.
var question = []byte{0x48, 0x66, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1}

// resolve asks a name server by UDP and returns once anything is answered.
func resolve(ctx context.Context, address string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // only asked
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := c.Write(question); err != nil {
		return err
	}
	answer := make([]byte, 512)
	n, err := io.ReadAtLeast(c, answer, 12)
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint16(answer[:n]) != binary.BigEndian.Uint16(question) {
		return errors.New("answered something else")
	}
	return nil
}

// held reads what the kernel says of a process, /proc/self/status.
func held(r *sandboxprobe.Report, status string) {
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "CapEff":
			r.Capabilities = value
		case "NoNewPrivs":
			r.NoNewPrivileges = value == "1"
		case "Seccomp":
			r.Seccomp, _ = strconv.Atoi(value) // none where the kernel says nothing we know
		}
	}
}
