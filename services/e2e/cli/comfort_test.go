package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// What was said and done is read back whole.
func history(t *testing.T, p *place) {
	s := p.create("echo one two three")
	harness.Eventually(t, "its run is over", func() bool {
		runs := parse[api.RunList](p, "session", "runs", s.ID).Items
		return len(runs) == 1 && runs[0].State == api.RunStateFinished
	})
	says(t, p.run(0, "session", "runs", s.ID), "RUN", "finished", "user:alice")
	says(t, p.run(0, "session", "messages", s.ID), "user:alice", "    echo one two three", "    one two three", `→ shell {"command":"echo one two three"}`)
	if l := parse[api.MessageList](p, "session", "messages", s.ID, "--limit", "1"); len(l.Items) != 1 || l.Next == "" {
		t.Errorf("one message: %+v", l)
	}
}

func extend(t *testing.T, p *place) {
	s := p.create("pwd")
	then := parse[api.Session](p, "session", "extend", s.ID, "--idle", "3h", "--max", "20h")
	if !then.Deadlines.Max.After(s.Deadlines.Max.Add(11 * time.Hour)) {
		t.Errorf("extended from %+v to %+v", s.Deadlines, then.Deadlines)
	}
	harness.Eventually(t, "its idle deadline is hours away", func() bool { // it has none while its run is open
		return time.Until(parse[api.Session](p, "session", "show", s.ID).Deadlines.Idle) > 2*time.Hour
	})
	says(t, p.run(2, "session", "extend", s.ID), "--idle, --max")
	says(t, p.run(2, "session", "extend", s.ID, "--idle", "1m"), "extend only makes it longer", "invalid-request")
}

// Tab offers what there is, with a word beside it, and nothing else where no server
// answers.
func completion(t *testing.T, p *place) {
	s := p.create("rm -rf build")
	offered := func(args ...string) string {
		t.Helper()
		return p.runWith(nil, 0, append([]string{"__complete", "--data-dir", p.dir}, args...)...)
	}
	harness.Eventually(t, "the session and its question are listed", func() bool {
		return strings.Contains(offered("session", "show", ""), s.ID+"\t") && strings.Contains(offered("approvals", "approve", s.ID), "rm -rf build")
	})
	says(t, offered("session", "create", "sh"), "shell\tagent at revision 1")
	says(t, offered("policy", "show", ""), "default\t")
	says(t, offered("--as", ""), "admin", "alice", "bob")
	says(t, offered("serve", ""), "gateway", "projector")
	if none := offered("runtime", "show", "no-such"); strings.Contains(none, "no-such") {
		t.Errorf("offered %q", none)
	}
	if none := p.runWith(nil, 0, "__complete", "--data-dir", t.TempDir(), "session", "show", ""); strings.Contains(none, "s-") {
		t.Errorf("without a server: %q", none)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		says(t, p.runWith(nil, 0, "completion", shell), "holdfast")
	}
}
