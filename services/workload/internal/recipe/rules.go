package recipe

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

// Rules are those of the driver in force. The zero Rules are a host's.
type Rules struct {
	// Pods says how Pods are made, where runtimes run in a cluster; nil is on hosts.
	Pods *podtemplate.Options
}

// Checked fills in what a spec leaves out, and finds everything that is wrong with it.
func (r Rules) Checked(s runtime.Spec) (runtime.Spec, []Wrong) {
	s = WithDefaults(s)
	s.Sandbox.Secrets = nil // what a client says of them isn't what counts
	var c checker
	c.check(s)
	if r.Pods == nil {
		c.onHost(s)
		return s, c
	}
	c.inCluster(s)
	blueprint, err := podtemplate.Build(ForDriver(s), *r.Pods)
	s.Sandbox.Secrets = blueprint.Secrets
	c.refused(err)
	return s, c
}

// refused adds what podtemplate says, but for places of which something is said.
func (c *checker) refused(err error) {
	refused, ok := errors.AsType[*podtemplate.RefusedError](err)
	if err != nil && !ok {
		c.wrong("/sandbox", "can't be made a Pod of: %v", err)
		return
	}
	if !ok {
		return
	}
	said := slices.Clone(*c)
	for _, w := range refused.Wrong {
		if !slices.ContainsFunc(said, func(s Wrong) bool { return s.Pointer == w.Pointer }) {
			c.wrong(w.Pointer, "%s", w.Detail)
		}
	}
}

// token is a name as a part of a JSON pointer (RFC 6901).
func token(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// overlap says whether one place is the other or in it.
func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// onHost is what a host has: programs and folders, but no images.
func (c *checker) onHost(spec runtime.Spec) {
	s := spec.Sandbox
	if s.HostFolder != "" && (!path.IsAbs(s.HostFolder) || path.Clean(s.HostFolder) != s.HostFolder || s.HostFolder == "/") {
		c.wrong("/sandbox/hostFolder", "has to be a clean absolute path of a folder")
	}
	if len(s.Command) == 0 {
		c.wrong("/sandbox/command", "the local driver has no images: say which command to run")
	}
	if w := spec.Workspace; w != nil && overlap(w.Path, sandboxapi.JailAgent) {
		c.wrong("/workspace/path", "has to be another place than %s, where sandbox.hostFolder is", sandboxapi.JailAgent)
	}
	for _, only := range []struct {
		said    bool
		pointer string
	}{
		{s.RuntimeClassName != "", "/sandbox/runtimeClassName"},
		{s.ServiceAccountName != "", "/sandbox/serviceAccountName"},
		{len(s.PodTemplate) > 0, "/sandbox/podTemplate"},
		{s.AllowSecrets, "/sandbox/allowSecrets"},
		{len(s.Resources.Requests) > 0, "/sandbox/resources/requests"},
		{spec.Workspace != nil && spec.Workspace.StorageClassName != "", "/workspace/storageClassName"},
	} {
		if only.said {
			c.wrong(only.pointer, "is for clusters: the local driver has none of it")
		}
	}
	for resource, q := range s.Resources.Limits {
		at := "/sandbox/resources/limits/" + token(resource)
		switch resource {
		case "cpu":
			c.quantity(at, q, millis)
		case "memory":
			c.quantity(at, q, bytes)
		case "pids":
			if _, err := strconv.ParseInt(q, 10, 64); err != nil {
				c.wrong(at, "can't be read: %v", err)
			}
		default:
			c.wrong(at, "is none of cpu, memory, pids; workspace.size bounds the disk")
		}
	}
}

// inCluster is what a cluster has beyond what a Pod can be made of: images, but nothing
// of the nodes.
func (c *checker) inCluster(spec runtime.Spec) {
	s := spec.Sandbox
	if s.HostFolder != "" {
		c.wrong("/sandbox/hostFolder", "is for the local driver: in a cluster the agent's code is in the image")
	}
	if w := spec.Workspace; w != nil && overlap(w.Path, path.Dir(sandboxapi.JailBinary)) {
		c.wrong("/workspace/path", "has to be another place than %s, where Holdfast's own is", path.Dir(sandboxapi.JailBinary))
	}
	for i, e := range spec.Entrypoints {
		if e.Port == podtemplate.Port {
			c.wrong("/entrypoints/"+strconv.Itoa(i)+"/port", "is sandboxd's")
		}
	}
	for _, list := range []struct {
		at string
		of runtime.Limits
	}{{"/sandbox/resources/limits/", s.Resources.Limits}, {"/sandbox/resources/requests/", s.Resources.Requests}} {
		for resource, q := range list.of {
			at := list.at + token(resource)
			switch resource {
			case "cpu":
				c.quantity(at, q, millis)
			case "memory", "ephemeral-storage":
				c.quantity(at, q, bytes)
			case "pids":
				c.wrong(at, "can't be said of one Pod: the kubelet's podPidsLimit bounds it")
			default:
				c.wrong(at, "is none of cpu, memory, ephemeral-storage; sandbox.podTemplate can say others")
			}
		}
	}
	if len(s.PodTemplate) == 0 {
		if s.AllowSecrets {
			c.wrong("/sandbox/allowSecrets", "is for sandbox.podTemplate, which alone can name Secrets")
		}
		return
	}
	c.besideTemplate(s)
}

// besideTemplate refuses what a whole template says itself.
func (c *checker) besideTemplate(s runtime.Sandbox) {
	for _, twice := range []struct {
		said  bool
		field string
	}{
		{s.Image != "", "image"},
		{len(s.Command) > 0, "command"},
		{len(s.Env) > 0, "env"},
		{s.RuntimeClassName != "", "runtimeClassName"},
		{s.ServiceAccountName != "", "serviceAccountName"},
		{len(s.Resources.Limits)+len(s.Resources.Requests) > 0, "resources"},
	} {
		if twice.said {
			c.wrong("/sandbox/"+twice.field, "belongs into sandbox.podTemplate, where there is one")
		}
	}
}
