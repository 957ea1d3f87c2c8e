package agents_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

// root is the repository's.
const root = "../../.."

// guide reads docs/agents.md.
func guide(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "docs", "agents.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

var (
	snippet  = regexp.MustCompile("(?s)<!-- snippet: ([^ ]+) -->\n```[a-z]+\n(.*?)```")
	yamlCode = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	shell    = regexp.MustCompile(`(?m)^\$ holdfast (.*)$`)
	quoted   = regexp.MustCompile(`'[^']*'|[^ ]+`)
)

// What the guide shows of the examples is in them.
func TestGuideShowsTheExamples(t *testing.T) {
	t.Parallel()
	shown := snippet.FindAllStringSubmatch(guide(t), -1)
	if len(shown) < 3 {
		t.Fatalf("%d snippets are shown", len(shown))
	}
	for _, s := range shown {
		raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(s[1])))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), s[2]) {
			t.Errorf("%s doesn't have\n%s", s[1], s[2])
		}
	}
}

// A newcomer can type what the guide says, and apply the runtime that it shows.
func TestGuideWorks(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	commands := shell.FindAllStringSubmatch(guide(t), -1)
	if len(commands) < 4 {
		t.Fatalf("%d commands are shown", len(commands))
	}
	for _, c := range commands {
		var args []string
		for _, a := range quoted.FindAllString(c[1], -1) {
			if strings.HasPrefix(a, "examples/") {
				a = filepath.Join(root, a)
			}
			args = append(args, strings.Trim(a, "'"))
		}
		child := harness.Spawn(t, nil, append(args, "--data-dir", h.DataDir)...)
		if code := child.Wait(); code != 0 {
			t.Fatalf("holdfast %s: exit %d: %s", c[1], code, child.Said())
		}
	}
	for _, y := range yamlCode.FindAllStringSubmatch(guide(t), -1) {
		var spec api.RuntimeSpec
		if err := yaml.UnmarshalStrict([]byte(y[1]), &spec); err != nil {
			t.Fatalf("%v in\n%s", err, y[1])
		}
		spec.WarmPool.Size = 0 // there is no such folder here
		if _, err := h.Client("admin").ApplyRuntimeWithResponse(h.Context(), spec.Name, nil, spec); err != nil {
			t.Errorf("apply\n%s: %v", y[1], err)
		}
	}
}

// A folder of the host is for admins, and has to be there.
func TestFolders(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	spec := func(folder string) api.RuntimeSpec {
		return api.RuntimeSpec{
			Name: "folder", Kind: api.RuntimeKindAgent, Policy: "default", OnIdle: api.OnIdleSuspend, OnLoss: api.OnLossRestart, Adapter: api.Adapter{Protocol: api.AdapterProtocolExec},
			Sandbox: api.Sandbox{HostFolder: folder, Command: []string{"sh", "/agent/agent.sh"}}, Stateless: true,
		}
	}
	_, err := operator(t, h).ApplyRuntimeWithResponse(h.Context(), "folder", nil, spec("/srv"))
	if p := harness.Refused(t, err, api.CodeForbidden); !strings.Contains(p.Detail, "hostFolder") {
		t.Errorf("an operator is refused with %q", p.Detail)
	}
	_, err = h.Client("admin").ApplyRuntimeWithResponse(h.Context(), "folder", nil, spec("srv"))
	if err == nil {
		t.Error("a relative folder was taken")
	}
	for folder, why := range map[string]string{filepath.Join(t.TempDir(), "none"): "no such file", h.DataDir: "Holdfast's data", "/proc/self": "belongs to the system"} {
		if _, err := h.Client("admin").ApplyRuntimeWithResponse(h.Context(), "folder", nil, spec(folder)); err != nil {
			t.Fatal(err)
		}
		s := h.CreateOf("alice", api.CreateSession{Runtime: "folder"})
		failed := failure(t, h, s.ID)
		if !strings.Contains(failed, why) {
			t.Errorf("folder %s: failed for %q, want %q", folder, failed, why)
		}
	}
}

// operator is somebody who may apply runtimes and is no admin.
func operator(t *testing.T, h *harness.Holdfast) *apiclient.ClientWithResponses {
	t.Helper()
	file := dev.TokensFile(h.DataDir)
	people, err := tokenfile.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	olga := tokenfile.Entry{Name: "olga", Token: tokenfile.NewToken(), Roles: []api.Role{api.RoleOperator}, Tenants: []string{harness.Tenant}}
	if err := tokenfile.Write(file, append(people, olga)); err != nil {
		t.Fatal(err)
	}
	c, err := apiclient.New(apiclient.Config{URL: h.URL, Token: olga.Token})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "olga is known", func() bool {
		_, err := c.GetMeWithResponse(h.Context())
		return err == nil
	})
	return c
}

// failure waits until a session's sandbox has failed and gives the reason.
func failure(t *testing.T, h *harness.Holdfast, id string) string {
	t.Helper()
	facts := h.AwaitFact(id, "the sandbox failed", func(facts []harness.Fact) bool {
		return len(harness.Of[session.Failed](facts)) > 0
	})
	return harness.Of[session.Failed](facts)[0].Detail
}
