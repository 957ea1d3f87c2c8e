package agentcube

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/api"
)

// Runtime is what a manifest becomes.
type Runtime struct {
	// Name is the runtime's; Spec has it too.
	Name string
	Spec api.RuntimeSpec
	// Notes say what of the manifest was left out, and what works otherwise here.
	Notes []string
}

// Is says whether a document is a manifest of AgentCube: of its API group, whatever the
// version and kind.
func Is(document []byte) bool {
	var head struct {
		APIVersion string `json:"apiVersion"`
	}
	return yaml.Unmarshal(document, &head) == nil && of(head.APIVersion)
}

// Read reads a manifest, YAML or JSON, for a tenant, whose namespace it has to be in if
// it names one. Its error is a [*RefusedError] where a field can't be honoured.
func Read(document []byte, tenant string) (Runtime, error) {
	raw, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return Runtime{}, fmt.Errorf("is no YAML: %w", err)
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return Runtime{}, fmt.Errorf("is no manifest: %w", err)
	}
	switch {
	case head.APIVersion != Group+"/"+Version:
		return Runtime{}, &RefusedError{Kind: head.Kind, Wrong: []Wrong{{"/apiVersion", "can be " + Group + "/" + Version}}}
	case head.Kind == KindAgentRuntime:
		return read(raw, tenant, agent)
	case head.Kind == KindCodeInterpreter:
		return read(raw, tenant, interpreter)
	}
	return Runtime{}, &RefusedError{Kind: head.Kind, Wrong: []Wrong{{"/kind", "can be " + KindAgentRuntime + " or " + KindCodeInterpreter}}}
}

// read decodes a manifest strictly and has its spec worded as a runtime's.
func read[S any](raw []byte, tenant string, word func(S, *Runtime, *refusals)) (Runtime, error) {
	var m manifest[S]
	var wrong refusals
	unknown, err := strictjson.UnmarshalStrict(raw, &m)
	if err != nil {
		return Runtime{}, fmt.Errorf("can't be read: %w", err)
	}
	for _, u := range unknown {
		wrong.field(u)
	}
	r := Runtime{Name: m.Metadata.Name, Spec: api.RuntimeSpec{Name: m.Metadata.Name, OnIdle: api.OnIdleEnd}}
	m.Metadata.judge(tenant, &wrong)
	if len(m.Status) > 0 {
		r.note("status is left out: it is what a cluster said")
	}
	if m.Metadata.ofCluster() {
		r.note("metadata that a cluster wrote (uid, resourceVersion, …) is left out")
	}
	word(m.Spec, &r, &wrong)
	if len(wrong) > 0 {
		return Runtime{}, &RefusedError{Kind: m.Kind, Name: m.Metadata.Name, Wrong: wrong}
	}
	return r, nil
}

func (r *Runtime) note(text string) { r.Notes = append(r.Notes, text) }

// lastApplied is kubectl's own copy of what was applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// judge refuses what a runtime has no place for.
func (m metadata) judge(tenant string, wrong *refusals) {
	if m.Name == "" {
		wrong.add("/metadata/name", "is needed")
	}
	if m.Namespace != "" && m.Namespace != tenant {
		wrong.add("/metadata/namespace", "is %q, and you act in the tenant %q: leave it out, or choose the tenant by --tenant", m.Namespace, tenant)
	}
	if len(m.Labels) > 0 {
		wrong.add("/metadata/labels", "can't be kept: a runtime has no labels")
	}
	for name := range m.Annotations {
		if name != lastApplied {
			wrong.add("/metadata/annotations", "can't be kept: a runtime has no annotations")
			break
		}
	}
	if m.GenerateName != "" {
		wrong.add("/metadata/generateName", "can't be: a runtime has a name of its own")
	}
	if len(m.Finalizers) > 0 {
		wrong.add("/metadata/finalizers", "can't be kept: nothing is asked before a runtime is removed")
	}
	if len(m.Owners) > 0 {
		wrong.add("/metadata/ownerReferences", "can't be kept: a runtime has no owner in a cluster")
	}
}

// ofCluster says whether an object of a cluster was written out.
func (m metadata) ofCluster() bool {
	return slices.ContainsFunc([]json.RawMessage{
		m.UID, m.ResourceVersion, m.Generation, m.CreationTimestamp, m.DeletionTimestamp, m.ManagedFields, m.SelfLink,
	}, func(said json.RawMessage) bool { return len(said) > 0 }) || m.Annotations[lastApplied] != ""
}

// agent words an AgentRuntime: a server in a Pod, which its callers reach by their
// session.
func agent(s agentRuntime, r *Runtime, wrong *refusals) {
	r.Spec.Kind, r.Spec.Adapter.Protocol = api.RuntimeKindAgent, api.AdapterProtocolNone
	if len(s.TargetPort) == 0 {
		wrong.add("/spec/targetPort", "is needed: nothing of the agent could be reached")
	}
	r.Spec.Entrypoints = entrypoints("/spec/targetPort", s.TargetPort, wrong)
	r.Spec.Timeouts = timeouts(s.SessionTimeout, s.MaxSessionDuration, wrong)
	if s.PodTemplate == nil || len(s.PodTemplate.Spec) == 0 {
		wrong.add("/spec/podTemplate/spec", "is needed: the agent's image is in it")
		return
	}
	sandbox, err := ofTemplate(*s.PodTemplate)
	if err != nil {
		wrong.add("/spec/podTemplate/spec", "can't be read: %v", err)
	}
	if len(sandbox.PodTemplate) == 0 {
		r.note("podTemplate says one plain container: it becomes the runtime's image, and is called " + agentContainer)
	}
	r.Spec.Sandbox = sandbox
}

// Modes of authentication of a CodeInterpreter.
const (
	authPicoD = "picod"
	authNone  = "none"
	// picoDPort is where AgentCube takes a code interpreter to serve unless it says.
	picoDPort = 8080
)

// interpreter words a CodeInterpreter.
func interpreter(s codeInterpreter, r *Runtime, wrong *refusals) {
	r.Spec.Kind, r.Spec.Adapter.Protocol = api.RuntimeKindCodeInterpreter, api.AdapterProtocolNone
	ports := s.Ports
	switch s.AuthMode {
	case "", authPicoD:
		r.note("authMode picod: Holdfast knows every caller before it reaches the sandbox, so that the image's own PicoD gets no key")
	case authNone:
		if len(ports) == 0 {
			ports = []port{{Port: picoDPort}}
		}
	default:
		wrong.add("/spec/authMode", "can be %s or %s", authPicoD, authNone)
	}
	r.Spec.Entrypoints = entrypoints("/spec/ports", ports, wrong)
	r.Spec.Timeouts = timeouts(s.SessionTimeout, s.MaxSessionDuration, wrong)
	if s.WarmPoolSize != nil {
		if *s.WarmPoolSize < 0 {
			wrong.add("/spec/warmPoolSize", "can't be less than 0")
		}
		r.Spec.WarmPool.Size = *s.WarmPoolSize
	}
	if s.Template == nil || s.Template.Image == "" {
		wrong.add("/spec/template/image", "is needed")
		return
	}
	sandbox, err := s.Template.sandbox()
	if err != nil {
		wrong.add("/spec/template", "can't be read: %v", err)
	}
	r.Spec.Sandbox = sandbox
}

// entrypoints words ports. Holdfast has one entrypoint a runtime.
func entrypoints(at string, of []port, wrong *refusals) []api.Entrypoint {
	var out []api.Entrypoint
	for i, p := range of {
		at := fmt.Sprintf("%s/%d", at, i)
		if i > 0 {
			wrong.add(at, "is one too many: a runtime has one entrypoint")
			continue
		}
		if p.Port < 1 || p.Port > 65535 {
			wrong.add(at+"/port", "has to be 1 to 65535")
		}
		if p.Protocol != "" && p.Protocol != "HTTP" {
			wrong.add(at+"/protocol", "can be HTTP: sandboxd speaks it with the agent beside it, and nothing else")
		}
		out = append(out, api.Entrypoint{
			Name: cmp.Or(p.Name, "app"), PathPrefix: cmp.Or(p.PathPrefix, "/"), Port: p.Port, Protocol: api.EntrypointProtocolHTTP,
		})
	}
	return out
}

// timeouts words both; what is left out is 15 minutes and 8 hours there as here.
func timeouts(idle, longest string, wrong *refusals) api.Timeouts {
	return api.Timeouts{
		Idle: duration("/spec/sessionTimeout", cmp.Or(idle, "15m"), wrong), Max: duration("/spec/maxSessionDuration", cmp.Or(longest, "8h"), wrong),
	}
}

func duration(at, text string, wrong *refusals) string {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("it has to be positive")
	}
	if err != nil {
		wrong.add(at, "can't be read as a duration such as 15m: %v", err)
	}
	return d.String()
}
