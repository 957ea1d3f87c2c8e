package kubetest

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestSchemeKnowsAgentSandbox(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "", Version: "v1", Kind: "Pod"},
		{Group: "agents.x-k8s.io", Version: "v1beta1", Kind: "Sandbox"},
		{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Kind: "SandboxClaim"},
		{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Kind: "SandboxTemplate"},
		{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Kind: "SandboxWarmPool"},
	} {
		if !scheme.Recognizes(kind) {
			t.Errorf("the scheme knows no %s", kind)
		}
	}
}
