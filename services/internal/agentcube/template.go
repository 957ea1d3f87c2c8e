package agentcube

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	strictjson "sigs.k8s.io/json"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/runtime"
)

// agentContainer is what Holdfast calls the agent's container.
const agentContainer = "agent"

// plainPod and plainContainer are what of a PodSpec needs no admin.
type plainPod struct {
	Containers       []plainContainer `json:"containers"`
	RuntimeClassName string           `json:"runtimeClassName,omitempty"`
}

type plainContainer struct {
	Name      string     `json:"name"`
	Image     string     `json:"image"`
	Command   []string   `json:"command,omitempty"`
	Args      []string   `json:"args,omitempty"`
	Env       []variable `json:"env,omitempty"`
	Resources *resources `json:"resources,omitempty"`
}

// ofTemplate words a Pod template, in Holdfast's own words where they say it all.
func ofTemplate(t podTemplate) (api.Sandbox, error) {
	var pod plainPod
	unknown, err := strictjson.UnmarshalStrict(t.Spec, &pod)
	if err == nil && len(unknown) == 0 && len(pod.Containers) == 1 && len(t.Labels)+len(t.Annotations) == 0 {
		if sandbox, ok := pod.sandbox(); ok {
			return sandbox, nil
		}
	}
	return whole(t.Labels, t.Annotations, t.Spec)
}

// whole passes a template on as an admin's.
func whole(labels, annotations map[string]string, spec json.RawMessage) (api.Sandbox, error) {
	type metadata struct {
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	raw, err := json.Marshal(struct {
		Metadata metadata        `json:"metadata,omitzero"`
		Spec     json.RawMessage `json:"spec"`
	}{metadata{labels, annotations}, spec})
	return api.Sandbox{PodTemplate: raw}, err
}

// sandbox words a Pod of one plain container; ok is false where it takes an admin, or
// where Kubernetes would read a value otherwise than Holdfast does.
func (p plainPod) sandbox() (s api.Sandbox, ok bool) {
	c := p.Containers[0]
	if c.Image == "" || len(c.Command) == 0 && len(c.Args) > 0 {
		return s, false // the image's entrypoint with other arguments
	}
	s = api.Sandbox{Image: c.Image, Command: slices.Concat(c.Command, c.Args), RuntimeClassName: p.RuntimeClassName}
	if slices.ContainsFunc(s.Command, expanded) {
		return s, false
	}
	for _, v := range c.Env {
		if len(v.ValueFrom) > 0 || expanded(v.Value) {
			return s, false
		}
		s.Env = append(s.Env, api.EnvVar{Name: v.Name, Value: v.Value})
	}
	if c.Resources == nil {
		return s, true
	}
	for _, list := range []runtime.Limits{c.Resources.Limits, c.Resources.Requests} {
		for name := range maps.Keys(list) {
			if !slices.Contains([]string{"cpu", "memory", "ephemeral-storage"}, name) {
				return s, false
			}
		}
	}
	limits, requests := c.Resources.Limits, c.Resources.Requests
	s.Resources = api.Resources{
		Limits: api.Limits{
			CPU: limits["cpu"], Memory: limits["memory"], EphemeralStorage: limits["ephemeral-storage"],
		},
		Requests: api.Requests{
			CPU: requests["cpu"], Memory: requests["memory"], EphemeralStorage: requests["ephemeral-storage"],
		},
	}
	return s, len(c.Resources.Claims) == 0
}

// expanded says whether Kubernetes would replace something in a value: $(NAME), or $$.
func expanded(value string) bool {
	return strings.Contains(value, "$(") || strings.Contains(value, "$$")
}

// sandbox words the one container of a CodeInterpreter.
func (c container) sandbox() (api.Sandbox, error) {
	plain := plainPod{RuntimeClassName: c.RuntimeClassName, Containers: []plainContainer{{
		Name: agentContainer, Image: c.Image, Command: c.Command, Args: c.Args, Env: c.Environment, Resources: c.Resources,
	}}}
	if c.ImagePullPolicy == "" && len(c.ImagePullSecrets) == 0 && len(c.Labels)+len(c.Annotations) == 0 {
		if sandbox, ok := plain.sandbox(); ok {
			return sandbox, nil
		}
	}
	raw, err := json.Marshal(struct {
		plainPod
		Containers       []pulledContainer `json:"containers"`
		ImagePullSecrets json.RawMessage   `json:"imagePullSecrets,omitempty"`
	}{plain, []pulledContainer{{plain.Containers[0], c.ImagePullPolicy}}, c.ImagePullSecrets})
	if err != nil {
		return api.Sandbox{}, fmt.Errorf("write the Pod: %w", err)
	}
	return whole(c.Labels, c.Annotations, raw)
}

// pulledContainer says when its image is pulled, too.
type pulledContainer struct {
	plainContainer
	ImagePullPolicy string `json:"imagePullPolicy,omitempty"`
}
