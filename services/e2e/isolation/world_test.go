package isolation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

func TestMain(m *testing.M) { harness.Main(m) }

// order and outcome are those of the hostile program.
type order struct {
	Attack  string `json:"attack"`
	Path    string `json:"path,omitempty"`
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Text    string `json:"text,omitempty"`
	Count   int    `json:"count,omitempty"`
}

type outcome struct {
	Got    bool   `json:"got"`
	Detail string `json:"detail"`
	Absent bool   `json:"absent"`
	// unanswered says that the sandbox gave no answer.
	unanswered bool
}

// What is to be stolen.
const (
	hostSecret      = "the secret of the host"
	neighbourSecret = "the secret of the neighbour"
)

// world is the running program with an attacker and a neighbour.
type world struct {
	*harness.Holdfast
	t *testing.T

	isolation           string
	attacker, neighbour *api.Session
	// folder has the hostile program, hostFile the host's secret, victim a file that
	// must keep what it says.
	folder, hostFile, victim string
	// hostServer listens on the host's loopback, abstract in the abstract namespace.
	hostServer, abstract string
	// neighbourPID and sandboxdPID are processes of the neighbour, as the host
	// numbers them; neighbourSocket is its endpoint, neighbourPort its agent's.
	neighbourPID, sandboxdPID int
	neighbourSocket           string
	neighbourPort             string
	// postgresSocket is that of the views.
	postgresSocket string
}

var program struct {
	once sync.Once
	path string
	err  error
}

// hostile builds the attacker, once.
func hostile(t *testing.T) string {
	t.Helper()
	program.once.Do(func() {
		program.path, program.err = harness.Build("github.com/holdfast-io/holdfast/services/e2e/isolation/hostile", "")
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return program.path
}

// start starts the program under an isolation, with the runtimes of both.
func start(t *testing.T, isolation string, options ...harness.Option) *world {
	t.Helper()
	w := &world{t: t, isolation: isolation, folder: filepath.Dir(hostile(t))}
	options = append(options, func(c *dev.Config) { c.Isolation = isolation })
	w.Holdfast = harness.Start(t, options...)
	w.runtime("hostile", api.Limits{Memory: "256Mi", Pids: 64}, "")
	w.runtime("neighbour", api.Limits{Memory: "256Mi", Pids: 64}, neighbourSecret)
	w.neighbour = w.CreateOf("admin", api.CreateSession{Runtime: "neighbour"})
	w.attacker = w.CreateOf("admin", api.CreateSession{Runtime: "hostile"})
	for _, s := range []*api.Session{w.neighbour, w.attacker} {
		if s.Phase != api.SessionPhaseReady || s.Isolation != isolation {
			t.Fatalf("session is %s under %q, want it ready under %q", s.Phase, s.Isolation, isolation)
		}
	}
	return w
}

// runtime applies a runtime of the hostile program with a secret of its own.
func (w *world) runtime(name string, limits api.Limits, mark string) {
	w.t.Helper()
	w.Runtime(name, func(s *api.RuntimeSpec) {
		s.Sandbox = api.Sandbox{
			Command: []string{"/agent/hostile"}, HostFolder: w.folder,
			Env: []api.EnvVar{{Name: "MARK", Value: mark}}, Resources: api.Resources{Limits: limits},
		}
	})
}

// plant lays out what is to be stolen, and finds out where it is.
func (w *world) plant() {
	w.t.Helper()
	dir := w.t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	w.hostFile, w.victim = filepath.Join(dir, "secret"), filepath.Join(dir, "victim")
	for _, path := range []string{w.hostFile, w.victim} {
		if err := os.WriteFile(path, []byte(hostSecret), 0o666); err != nil {
			w.t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			w.t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, hostSecret) }))
	w.t.Cleanup(server.Close)
	w.hostServer = server.Listener.Addr().String()
	w.abstract = "@holdfast-test-" + strconv.Itoa(os.Getpid()) + w.isolation
	l, err := net.Listen("unix", w.abstract)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = l.Close() })

	w.do(w.neighbour, order{Attack: "create", Path: "mark", Text: neighbourSecret})
	w.sandboxdPID = w.Sandboxes(w.neighbour.ID)[0].Process.PID
	if w.isolation == "gvisor" {
		// The agent is no process of the host's.
		w.neighbourPID, w.neighbourPort = w.sandboxdPID, "8000"
	} else {
		w.neighbourPID = w.processWith("MARK=" + neighbourSecret)
		w.neighbourPort = w.environment(w.neighbourPID, "PORT")
	}
	w.neighbourSocket = w.socket(w.neighbour.ID)
	w.postgresSocket = w.glob("postgres/**/.s.PGSQL.*", "run/*/.s.PGSQL.*", "*/.s.PGSQL.*", "*/*/.s.PGSQL.*")
}

// processWith finds a process of the host by a variable of its environment.
func (w *world) processWith(kv string) int {
	w.t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, path := range paths {
		env, err := os.ReadFile(path)
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err == nil && strings.Contains(string(env), kv) && strings.Contains(string(line), "hostile") && !strings.Contains(string(line), "jail") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	w.t.Fatalf("no process has %s", kv)
	return 0
}

func (w *world) environment(pid int, name string) string {
	w.t.Helper()
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		w.t.Fatal(err)
	}
	for kv := range strings.SplitSeq(string(env), "\x00") {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	w.t.Fatalf("process %d has no %s", pid, name)
	return ""
}

// socket is the endpoint of a session's sandbox.
func (w *world) socket(session string) string {
	w.t.Helper()
	records, err := filepath.Glob(filepath.Join(w.DataDir, "local", "sandboxes", "*", "record.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, path := range records {
		raw, err := os.ReadFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		var r struct{ Session, Socket string }
		if err := json.Unmarshal(raw, &r); err != nil {
			w.t.Fatal(err)
		}
		if r.Session == session {
			return r.Socket
		}
	}
	w.t.Fatalf("session %s has no endpoint", session)
	return ""
}

// glob finds a file below the data directory.
func (w *world) glob(patterns ...string) string {
	w.t.Helper()
	for _, p := range patterns {
		if found, err := filepath.Glob(filepath.Join(w.DataDir, p)); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	w.t.Fatalf("nothing is at %q", patterns)
	return ""
}

// call invokes a session's entrypoint as the admin.
func (w *world) call(ctx context.Context, s *api.Session, method, path string, body any) (int, []byte) {
	w.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, w.URL+"/v1/sessions/"+s.ID+"/invoke"+path, bytes.NewReader(raw))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.Token("admin"))
	return answered(req)
}

// answered makes a request; status 0 says that there was no answer, and why.
func answered(req *http.Request) (int, []byte) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return resp.StatusCode, answer
}

// do has a session try something; the test fails without an answer.
func (w *world) do(s *api.Session, o order) outcome {
	w.t.Helper()
	out := w.attempt(s, o)
	if out.unanswered {
		w.t.Fatalf("%s: %s", o.Attack, out.Detail)
	}
	return out
}

// attempt is do for what may end the sandbox.
func (w *world) attempt(s *api.Session, o order) (out outcome) {
	w.t.Helper()
	status, answer := w.call(w.Context(), s, http.MethodPost, "/try", o)
	if err := json.Unmarshal(answer, &out); status != http.StatusOK || err != nil {
		return outcome{Detail: fmt.Sprintf("%d %s", status, answer), unanswered: true}
	}
	return out
}

// neighbourAnswers wants the neighbour unharmed.
func (w *world) neighbourAnswers() {
	w.t.Helper()
	if status, answer := w.call(w.Context(), w.neighbour, http.MethodGet, "/mark", nil); status != http.StatusOK || string(answer) != neighbourSecret {
		w.t.Errorf("the neighbour answers %d %q", status, answer)
	}
}
