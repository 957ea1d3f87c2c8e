package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// The commands of a client, on one dev.
func TestCommands(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.begin()
	defer func() {
		if code := p.dev.Interrupt(); code != 0 {
			t.Errorf("Ctrl-C: exit %d: %s", code, p.dev.Said())
		}
	}()
	for name, test := range map[string]func(*testing.T, *place){
		"a session's life": life, "questions": questions, "cancel": cancel, "watch": watch,
		"runtimes": runtimes, "AgentCube": agentCube, "policies": policies, "the demo": demo, "doctor and version": doctor, "exit codes": exitCodes,
		"a live view": live, "a live view of hostile text": liveHostile, "lines in a terminal": livePlain,
		"a session's history": history, "more time": extend, "a shell's Tab": completion,
	} {
		t.Run(name, func(t *testing.T) { test(t, p.in(t)) })
	}
}

func (p *place) create(message string) api.Session {
	p.t.Helper()
	return parse[api.Session](p, "session", "create", "shell", "-m", message, "--wait", "30", "--as", "alice")
}

func life(t *testing.T, p *place) {
	s := parse[api.Session](p, "session", "create", "shell", "--label", "team=search", "--config", `{"model": "small"}`, "--wait", "30", "--as", "alice")
	if s.Phase != api.SessionPhaseReady || s.Owner != "user:alice" || s.Labels["team"] != "search" {
		t.Errorf("created: %+v", s)
	}
	harness.Eventually(t, "it was created with its config", func() bool {
		return strings.Contains(p.run(0, "audit", "list", "--session", s.ID, "--type", "session.created", "-o", "json"), `"model": "small"`)
	})
	says(t, p.run(2, "session", "create", "shell", "--config", "{model}"), "it is no JSON")
	says(t, p.run(2, "session", "show", s.ID, "--as-of", "yesterday"), "--as-of", "such as 5")
	harness.Eventually(t, "it is listed", func() bool { // lists follow the log
		list := parse[api.SessionList](p, "session", "list", "--label", "team=search")
		return len(list.Items) == 1 && list.Items[0].ID == s.ID
	})
	says(t, p.run(0, "session", "list"), "SESSION", s.ID, "shell@1")
	says(t, p.run(0, "session", "show", s.ID), s.ID, "ready", "team=search", s.Isolation)
	says(t, p.run(0, "session", "send", s.ID, "-w", "echo", "hello"), "$ echo hello\n", "\nhello\n", "\nexit 0\n", "run.finished")
	if m := parse[api.MessageAccepted](p, "session", "send", s.ID, "pwd"); m.RunID == "" {
		t.Errorf("sent: %+v", m)
	}
	show := func() api.Session { return parse[api.Session](p, "session", "show", s.ID) }
	harness.Eventually(t, "its run is over", func() bool { return show().Run == "" })
	p.run(0, "session", "suspend", s.ID)
	harness.Eventually(t, "it is suspended", func() bool { return show().Phase == api.SessionPhaseSuspended })
	says(t, p.run(3, "session", "suspend", s.ID), "it is suspended; possible now:", "resume", "illegal-transition")
	p.run(0, "session", "resume", s.ID)
	harness.Eventually(t, "it is ready", func() bool { return show().Phase == api.SessionPhaseReady })
	p.run(0, "session", "terminate", s.ID, "--reason", "no longer needed")
	harness.Eventually(t, "it has ended", func() bool { return show().Phase == api.SessionPhaseEnded })
	says(t, p.run(0, "session", "show", s.ID), "ended (terminated)", "no longer needed")
	if then := parse[api.Session](p, "session", "show", s.ID, "--as-of", "1"); then.N != 1 || then.Phase != api.SessionPhasePending {
		t.Errorf("as of 1: %+v", then)
	}

	said := p.run(0, "replay", s.ID)
	says(t, said, "session.created", "workload.ready", "$ echo hello\nhello\n", "session.ended")
	frames := lines[api.Frame](p, "replay", s.ID)
	if first := frames[0]; first.Kind != api.FrameKindControl || !slices.ContainsFunc(frames, harness.OnEvent("session.ended")) {
		t.Errorf("replayed: %s", harness.Summary(frames))
	}
	harness.Eventually(t, "its end is in the audit", func() bool {
		return len(parse[api.AuditList](p, "audit", "list", "--session", s.ID, "--type", "session.ended").Items) == 1
	})
	audit := parse[api.AuditList](p, "audit", "list", "--session", s.ID, "--type", "session.terminated", "--actor", "user:admin")
	if len(audit.Items) != 1 || audit.Items[0].Subject != s.ID {
		t.Errorf("audit: %+v", audit)
	}
	says(t, p.run(0, "audit", "list", "--session", s.ID, "--limit", "3"), "session.ended", "service:session", "There is more: --cursor")
}

// asked waits for a session's question.
func (p *place) asked(session string) api.Approval {
	p.t.Helper()
	var a api.Approval
	harness.Eventually(p.t, "it asks", func() bool {
		for _, a = range parse[api.ApprovalList](p, "approvals", "list").Items {
			if a.Session == session {
				return true
			}
		}
		return false
	})
	return a
}

func questions(t *testing.T, p *place) {
	s := p.create("touch made\nrm made")
	a := p.asked(s.ID)
	says(t, p.run(0, "approvals", "list"), a.ID, "touch made")
	says(t, p.run(0, "approvals", "show", a.ID), `"command": "touch made"`, a.ArgsHash, "the rest is asked", "user:alice", "asked")
	says(t, p.run(3, "approvals", "approve", a.ID, "--as", "alice"), "not-an-approver")
	says(t, p.run(3, "approvals", "approve", a.ID, "--as", "bob", "--args-hash", strings.Repeat("0", 64)), "args-changed")
	says(t, p.run(0, "approvals", "approve", a.ID, "--as", "bob", "-c", "fine"), `"command": "touch made"`, "→ approved")
	says(t, p.run(3, "approvals", "deny", a.ID, "--as", "admin"), "user:bob said approve at")
	var second api.Approval
	harness.Eventually(t, "it asks again", func() bool { second = p.asked(s.ID); return second.ID != a.ID })
	if denied := parse[api.Approval](p, "approvals", "deny", second.ID, "--as", "bob", "-c", "keep it"); denied.State != api.CallStateDenied {
		t.Errorf("denied: %+v", denied)
	}
	harness.Eventually(t, "it is listed as denied", func() bool {
		of := parse[api.ApprovalList](p, "approvals", "list", "--state", "denied")
		return len(of.Items) == 1 && of.Items[0].Decision.Reason == "keep it"
	})
}

func cancel(t *testing.T, p *place) {
	s := p.create("touch made")
	a := p.asked(s.ID)
	p.run(0, "session", "cancel", s.ID)
	harness.Eventually(t, "nobody is asked", func() bool { return parse[api.Session](p, "session", "show", s.ID).Waiting == 0 })
	says(t, p.run(3, "approvals", "approve", a.ID), "cancelled")
	says(t, p.run(1, "session", "cancel", s.ID), "no open run")
}

// Who watches sees what comes until there is no more, or until they stop.
func watch(t *testing.T, p *place) {
	inbox := harness.Spawn(t, nil, "approvals", "watch", "--data-dir", p.dir)
	s := p.create("touch made")
	session := harness.Spawn(t, nil, "session", "watch", s.ID, "--data-dir", p.dir)
	session.Await("a person is asked")
	inbox.Await(s.ID)
	p.run(0, "approvals", "approve", p.asked(s.ID).ID, "--as", "bob")
	session.Await("approved by user:bob")
	inbox.Await("approved by user:bob")
	p.run(0, "session", "terminate", s.ID)
	if code := session.Wait(); code != 0 {
		t.Errorf("watching to the end: exit %d: %s", code, session.Said())
	}
	says(t, session.Said(), "session.created", "$ touch made", "session.ended  terminated")
	if code := inbox.Interrupt(); code != 0 {
		t.Errorf("Ctrl-C while watching: exit %d: %s", code, inbox.Said())
	}
}

func runtimes(t *testing.T, p *place) {
	const spec = `
name: %s
kind: agent
adapter: {protocol: agui, entrypoint: app, path: /run}
sandbox: {command: [/holdfast/sandboxd, shell-agent], resources: {limits: {pids: 64}}}
workspace: {path: /workspace}
entrypoints: [{name: app, port: %d, ready: /health}]
`
	good := p.file("coder.yaml", fmt.Sprintf(spec, "coder", 8000))
	says(t, p.run(0, "runtime", "apply", "-f", good), "runtime coder is at revision 1")
	says(t, p.run(0, "runtime", "apply", "-f", good), "revision 1", "unchanged")
	harness.Eventually(t, "it is listed", func() bool {
		return slices.ContainsFunc(parse[api.RuntimeList](p, "runtime", "list").Items, func(r api.Runtime) bool {
			return r.Name == "coder" && r.Spec.Sandbox.Resources.Limits.Pids == 64 && r.By == "user:admin"
		})
	})
	says(t, p.run(0, "runtime", "list"), "RUNTIME", "coder@1", "shell@1")
	says(t, p.run(3, "runtime", "apply", "-f", p.file("bad.yaml", fmt.Sprintf(spec, "bad", 7777))), "/entrypoints/0/port")
	says(t, p.run(3, "runtime", "apply", "-f", good, "--as", "alice"), "forbidden")
	says(t, p.run(2, "runtime", "apply"), "-f FILE")
	shown := p.file("shown.yaml", p.run(0, "runtime", "show", "coder"))
	says(t, p.run(0, "runtime", "apply", "-f", shown), "revision 1", "unchanged") // it can be applied again
	says(t, p.run(0, "runtime", "remove", "coder"), "coder is removed")
	harness.Eventually(t, "it is listed no more", func() bool { return !strings.Contains(p.run(0, "runtime", "list"), "coder@") })
	says(t, p.run(3, "session", "create", "coder"), "coder")
}

// Manifests of AgentCube are runtimes, too, beside others in one file: all or none of
// it is read.
func agentCube(t *testing.T, p *place) {
	const file = `
name: ours
kind: agent
adapter: {protocol: none}
sandbox: {command: [/holdfast/sandboxd, shell-agent]}
---
apiVersion: runtime.agentcube.volcano.sh/v1alpha1
kind: CodeInterpreter
metadata: {name: theirs, namespace: %s}
spec:
  template: {image: acme/python, command: [/holdfast/sandboxd, shell-agent], resources: {limits: {memory: 64Mi}}}
  %s: 10m
`
	says(t, p.run(1, "runtime", "apply", "-f", p.file("wrong.yaml", fmt.Sprintf(file, "default", "sessionTimeOut"))),
		"CodeInterpreter theirs", "/spec/sessionTimeOut")
	says(t, p.run(1, "runtime", "apply", "-f", p.file("wrong.yaml", fmt.Sprintf(file, "team-b", "sessionTimeout"))), "/metadata/namespace", "team-b")
	if list := p.run(0, "runtime", "list"); strings.Contains(list, "ours") {
		t.Errorf("a file with a wrong document was applied in part: %s", list)
	}
	says(t, p.run(0, "runtime", "apply", "-f", p.file("both.yaml", fmt.Sprintf(file, "default", "sessionTimeout"))),
		"runtime ours is at revision 1", "runtime theirs is at revision 1")
	if r := parse[api.Runtime](p, "runtime", "show", "theirs"); r.Spec.Kind != "code-interpreter" || r.Spec.Timeouts.Idle != "10m0s" ||
		r.Spec.Sandbox.Resources.Limits.Memory != "64Mi" || r.Spec.OnIdle != api.OnIdleEnd {
		t.Errorf("the manifest became %+v", r.Spec)
	}
}

func policies(t *testing.T, p *place) {
	good := "name: careful\ndefault: ask\nrules:\n  - {name: looking, when: 'tool == \"shell\" && args.command == \"ls\"', then: allow}\n"
	says(t, p.run(0, "policy", "apply", "-f", p.file("careful.yaml", good)), "policy careful is at revision 1")
	if of := parse[api.Policy](p, "policy", "apply", "-f", p.file("careful.yaml", good)); of.Revision != 1 || of.Spec.Rules[0].Name != "looking" {
		t.Errorf("applied: %+v", of)
	}
	bad := strings.Replace(good, "args.command", "arg.command", 1)
	says(t, p.run(3, "policy", "apply", "-f", p.file("bad.yaml", bad)), "/rules/0/when", "1:20: undeclared reference to 'arg'", "policy-invalid")
	says(t, p.run(1, "policy", "apply", "-f", p.file("none.yaml", "{")), "no YAML")
	says(t, p.run(1, "policy", "apply", "-f", "/no/such/file"), "/no/such/file")
	harness.Eventually(t, "it is listed", func() bool { return strings.Contains(p.run(0, "policy", "list"), "careful@1") })
	shown := p.file("shown.yaml", p.run(0, "policy", "show", "careful"))
	says(t, p.run(0, "policy", "apply", "-f", shown), "revision 1", "unchanged") // it can be applied again
	says(t, p.run(0, "policy", "remove", "careful"), "careful is removed")
}

func demo(t *testing.T, p *place) {
	says(t, p.run(0, "demo"),
		"alice creates a session", "workload.ready", "hello from the sandbox", "a person is asked", "bob sees exactly that", "HTTP 201",
		"written by an agent", "nobody needs this in a sandbox", "run.finished", " replay s-", "--data-dir "+p.dir)
}

func doctor(t *testing.T, p *place) {
	says(t, p.run(0, "doctor"), "✓ machine.isolation", "✓ server ", "✓ server.projector", "✓ server.clock", "✓ server.parked", "admin in tenant default")
	for _, f := range parse[[]struct{ Name, Grade, WayOut string }](p, "doctor") {
		if f.Grade != "ok" && f.WayOut == "" {
			t.Errorf("%s is %s, and what is to be done isn't said", f.Name, f.Grade)
		}
	}
	away := p.runWith([]string{"HOLDFAST_URL=http://127.0.0.1:1", "HOLDFAST_TOKEN=none"}, 1, "doctor", "--data-dir", p.dir)
	says(t, away, "✗ server", "connection refused", "→ start it with 'holdfast dev'", "not everything works")
	says(t, p.run(0, "version"), "holdfast ", "go1.")
}

func exitCodes(t *testing.T, p *place) {
	const nobody = "s-aaaaaaaaaaaaaaaaaaaa"
	for name, tc := range map[string]struct {
		env  []string
		code int
		args []string
		says string
	}{
		"no such command":    {nil, 2, []string{"frobnicate"}, "frobnicate"},
		"no such subcommand": {nil, 2, []string{"session", "frobnicate"}, "frobnicate"},
		"no such flag":       {nil, 2, []string{"session", "list", "--frobnicate"}, "frobnicate"},
		"too few arguments":  {nil, 2, []string{"session", "show"}, "session show"},
		"no such output":     {nil, 2, []string{"session", "list", "-o", "xml"}, "text or json"},
		"a speed that isn't": {nil, 2, []string{"replay", nobody, "--speed", "fast"}, "speed"},
		"no such session":    {nil, 3, []string{"session", "show", nobody}, "not-found"},
		"not allowed":        {nil, 3, []string{"audit", "list", "--as", "alice"}, "forbidden"},
		"another's token":    {[]string{"HOLDFAST_TOKEN=hf_nobodys_token_of_32_characters"}, 3, []string{"session", "list"}, "unauthenticated"},
		"nobody listens":     {[]string{"HOLDFAST_URL=http://127.0.0.1:1"}, 4, []string{"session", "list"}, "127.0.0.1:1"},
		"no such person":     {nil, 2, []string{"session", "list", "--as", "mallory"}, "mallory"},
	} {
		t.Run(name, func(t *testing.T) {
			says(t, p.in(t).runWith(tc.env, tc.code, append(tc.args, "--data-dir", p.dir)...), tc.says)
		})
	}
}
