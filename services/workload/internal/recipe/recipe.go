// Package recipe fills in, checks and words a runtime's spec: what a runtime may
// ask for is decided here, when it is applied, not when a sandbox is started. What that
// is depends on where its sandboxes run, on hosts or in a cluster: see [Rules].
package recipe

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/runtime"
)

// Wrong is one place of a spec that is wrong. Pointer is a JSON pointer.
type Wrong struct{ Pointer, Detail string }

// Limits of a runtime.
const (
	MaxWarm    = 64
	maxTimeout = 30 * 24 * time.Hour
	maxEnv     = 100
	// relayPort is sandboxd's own on the sandbox's loopback.
	relayPort = 7777
)

// Defaults of a spec's timeouts, from the design's example.
const (
	defaultClaim   = events.Duration(60 * time.Second)
	defaultIdle    = events.Duration(15 * time.Minute)
	defaultMax     = events.Duration(8 * time.Hour)
	defaultWaiting = events.Duration(2 * time.Minute)
	defaultDrain   = events.Duration(30 * time.Second)
)

// WithDefaults gives the spec with what it leaves out filled in; what the caller has
// stays as it is.
func WithDefaults(s runtime.Spec) runtime.Spec {
	s.Entrypoints = slices.Clone(s.Entrypoints)
	fill(&s.Kind, runtime.KindAgent)
	if s.Adapter.Protocol == "" {
		s.Adapter.Protocol = "agui"
		if s.Kind == runtime.KindCodeInterpreter {
			s.Adapter.Protocol = "none"
		}
	}
	if s.Adapter.Protocol != "none" {
		fill(&s.Adapter.Resume, "rerun")
	}
	if s.Adapter.Protocol == "agui" {
		fill(&s.Adapter.Path, "/")
		if len(s.Entrypoints) > 0 {
			fill(&s.Adapter.Entrypoint, s.Entrypoints[0].Name)
		}
	}
	for i := range s.Entrypoints {
		fill(&s.Entrypoints[i].PathPrefix, "/")
		fill(&s.Entrypoints[i].Protocol, "HTTP")
	}
	fill(&s.Timeouts.Claim, defaultClaim)
	fill(&s.Timeouts.Idle, defaultIdle)
	fill(&s.Timeouts.Max, defaultMax)
	fill(&s.Timeouts.SuspendWhileWaiting, defaultWaiting)
	fill(&s.Timeouts.DrainGrace, defaultDrain)
	if s.OnIdle == "" {
		s.OnIdle = "end"
		if s.Workspace != nil || s.Stateless {
			s.OnIdle = "suspend"
		}
	}
	fill(&s.OnLoss, "restart")
	fill(&s.Policy, "default")
	return s
}

func fill[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

// checker collects what is wrong.
type checker []Wrong

func (c *checker) wrong(pointer, detail string, args ...any) {
	*c = append(*c, Wrong{pointer, fmt.Sprintf(detail, args...)})
}

func (c *checker) oneOf(pointer, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		c.wrong(pointer, "has to be one of %s", strings.Join(allowed, ", "))
	}
}

var (
	envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	name    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// check finds what is wrong wherever a runtime runs, in a spec that has its defaults.
func (c *checker) check(s runtime.Spec) {
	if !name.MatchString(s.Name) {
		c.wrong("/name", "use 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends")
	}
	if !name.MatchString(s.Policy) {
		c.wrong("/policy", "has to be the name of a policy")
	}
	c.oneOf("/kind", string(s.Kind), string(runtime.KindAgent), string(runtime.KindCodeInterpreter))
	c.oneOf("/onIdle", s.OnIdle, "suspend", "end")
	c.oneOf("/onLoss", s.OnLoss, "restart", "end")
	if s.OnIdle == "suspend" && s.Workspace == nil && !s.Stateless {
		c.wrong("/onIdle", "suspending without a workspace loses the state: give it a workspace, or say stateless: true")
	}
	if s.Workspace != nil && (!strings.HasPrefix(s.Workspace.Path, "/") || len(s.Workspace.Path) < 2 || strings.Contains(s.Workspace.Path, "..")) {
		c.wrong("/workspace/path", "has to be an absolute path below /")
	}
	if s.Workspace != nil {
		c.quantity("/workspace/size", s.Workspace.Size, bytes)
	}
	if s.WarmPool.Size < 0 || s.WarmPool.Size > MaxWarm {
		c.wrong("/warmPool/size", "has to be 0 to %d", MaxWarm)
	}
	c.adapter(s)
	c.entrypoints(s)
	c.env(s.Sandbox.Env)
	c.timeouts(s.Timeouts)
	for i, p := range s.Redact {
		if !strings.HasPrefix(p, "/") {
			c.wrong(fmt.Sprintf("/redact/%d", i), "has to be a JSON pointer into a call's arguments, such as /password")
		}
	}
}

func (c *checker) env(of []runtime.EnvVar) {
	if len(of) > maxEnv {
		c.wrong("/sandbox/env", "at most %d variables", maxEnv)
	}
	for i, e := range of {
		if !envName.MatchString(e.Name) {
			c.wrong(fmt.Sprintf("/sandbox/env/%d/name", i), "has to be a variable's name")
		}
	}
}

// adapter checks how runs reach the agent: `agui` needs an entrypoint to POST them to,
// `push` may have one beside, of `exec` no process stays that could serve.
func (c *checker) adapter(s runtime.Spec) {
	c.oneOf("/adapter/protocol", s.Adapter.Protocol, "agui", "exec", "push", "none")
	if s.Adapter.Protocol == "none" {
		return
	}
	c.oneOf("/adapter/resume", s.Adapter.Resume, "rerun")
	if s.Adapter.Protocol != "agui" {
		if s.Adapter.Entrypoint != "" {
			c.wrong("/adapter/entrypoint", "is for agui alone: an agent of %s is not called", s.Adapter.Protocol)
		}
		if s.Adapter.Path != "" {
			c.wrong("/adapter/path", "is for agui alone: an agent of %s is not called", s.Adapter.Protocol)
		}
		if s.Adapter.Protocol == "exec" && len(s.Entrypoints) > 0 {
			c.wrong("/entrypoints", "exec starts its command for each message, so nothing serves in between")
		}
		return
	}
	if !strings.HasPrefix(s.Adapter.Path, "/") {
		c.wrong("/adapter/path", "has to begin with /")
	}
	for _, e := range s.Entrypoints {
		if e.Name == s.Adapter.Entrypoint {
			return
		}
	}
	c.wrong("/adapter/entrypoint", "has to name one of the entrypoints")
}

func (c *checker) entrypoints(s runtime.Spec) {
	if len(s.Entrypoints) > 1 {
		c.wrong("/entrypoints", "one entrypoint is supported")
	}
	for i, e := range s.Entrypoints {
		at := fmt.Sprintf("/entrypoints/%d", i)
		if !name.MatchString(e.Name) {
			c.wrong(at+"/name", "use 1 to 63 of a-z, 0-9 and -")
		}
		if e.Port < 1 || e.Port > 65535 || e.Port == relayPort {
			c.wrong(at+"/port", "has to be 1 to 65535 and not %d, which is sandboxd's", relayPort)
		}
		c.oneOf(at+"/protocol", e.Protocol, "HTTP")
		if !strings.HasPrefix(e.PathPrefix, "/") {
			c.wrong(at+"/pathPrefix", "has to begin with /")
		}
		if e.Ready != "" && !strings.HasPrefix(e.Ready, "/") {
			c.wrong(at+"/ready", "has to begin with /")
		}
	}
}

func (c *checker) timeouts(t runtime.Timeouts) {
	for _, f := range []struct {
		pointer string
		d       events.Duration
	}{
		{"claim", t.Claim}, {"idle", t.Idle}, {"max", t.Max}, {"suspendWhileWaiting", t.SuspendWhileWaiting}, {"drainGrace", t.DrainGrace},
	} {
		if f.d <= 0 || f.d.D() > maxTimeout {
			c.wrong("/timeouts/"+f.pointer, "has to be positive and at most %s", maxTimeout)
		}
	}
}
