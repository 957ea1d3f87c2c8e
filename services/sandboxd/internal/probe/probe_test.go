package probe

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast/services/internal/sandboxprobe"
)

func TestWhatIsSeen(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gone, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	targets, err := json.Marshal([]sandboxprobe.Target{
		{Name: "open", Address: l.Addr().String(), Open: true},
		{Name: "closed", Address: gone.Addr().String()},
		{Name: "api", Address: sandboxprobe.KubernetesAPI},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "answer")
	t.Setenv(sandboxprobe.EnvTargets, string(targets))
	t.Setenv(sandboxprobe.EnvAnswer, file)
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	if code := Run(); code != 0 {
		t.Fatalf("exit %d", code)
	}
	answer, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r sandboxprobe.Report
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Attempts) != 3 || !r.Attempts[0].Reached || r.Attempts[1].Reached || !r.Attempts[2].Reached {
		t.Errorf("attempts: %+v", r.Attempts)
	}
	if r.UID != os.Getuid() || r.Capabilities == "" || r.Kernel == "" || r.KubernetesToken {
		t.Errorf("%+v", r)
	}
}

func TestNothingToTryIsAnError(t *testing.T) {
	t.Setenv(sandboxprobe.EnvTargets, "")
	if Run() == 0 {
		t.Error("it had no targets and says that all is well")
	}
}

// A name server is reached when it answers at all, and not when nobody is there.
func TestResolve(t *testing.T) {
	var lc net.ListenConfig
	server, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 512)
		if n, from, err := server.ReadFrom(b); err == nil {
			_, _ = server.WriteTo(b[:n], from)
		}
	}()
	if err := resolve(t.Context(), server.LocalAddr().String()); err != nil {
		t.Error(err)
	}
	<-done
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := resolve(t.Context(), server.LocalAddr().String()); err == nil {
		t.Error("nobody is there")
	}
	if got := nameserver("search x\nnameserver 10.96.0.10\nnameserver 1.1.1.1\n"); got != "10.96.0.10" {
		t.Errorf("the first name server is %q", got)
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	var r sandboxprobe.Report
	held(&r, "Name:\tx\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n")
	if r.Capabilities != "0000000000000000" || !r.NoNewPrivileges || r.Seccomp != 2 {
		t.Errorf("%+v", r)
	}
}
