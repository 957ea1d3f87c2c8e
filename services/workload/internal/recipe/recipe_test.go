package recipe_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/services/workload/internal/recipe"
)

// Each adapter needs what it works with, and takes nothing that it would ignore.
func TestAdapters(t *testing.T) {
	t.Parallel()
	entrypoints := []runtime.Entrypoint{{Name: "app", Port: 8000}}
	for name, tc := range map[string]struct {
		adapter     runtime.Adapter
		entrypoints []runtime.Entrypoint
		folder      string
		workspace   string
		wrong       []string
	}{
		"agui":                      {adapter: runtime.Adapter{Protocol: "agui"}, entrypoints: entrypoints},
		"agui is the default":       {entrypoints: entrypoints},
		"agui without an endpoint":  {adapter: runtime.Adapter{Protocol: "agui"}, wrong: []string{"/adapter/entrypoint"}},
		"exec":                      {adapter: runtime.Adapter{Protocol: "exec"}},
		"exec that would serve":     {adapter: runtime.Adapter{Protocol: "exec"}, entrypoints: entrypoints, wrong: []string{"/entrypoints"}},
		"exec with a path":          {adapter: runtime.Adapter{Protocol: "exec", Path: "/run"}, wrong: []string{"/adapter/path"}},
		"push":                      {adapter: runtime.Adapter{Protocol: "push"}},
		"push that serves, too":     {adapter: runtime.Adapter{Protocol: "push"}, entrypoints: entrypoints},
		"push that would be called": {adapter: runtime.Adapter{Protocol: "push", Entrypoint: "app"}, entrypoints: entrypoints, wrong: []string{"/adapter/entrypoint"}},
		"none":                      {adapter: runtime.Adapter{Protocol: "none"}},
		"another":                   {adapter: runtime.Adapter{Protocol: "pull"}, wrong: []string{"/adapter/protocol"}},
		"a folder":                  {adapter: runtime.Adapter{Protocol: "push"}, folder: "/srv/agent"},
		"a relative folder":         {adapter: runtime.Adapter{Protocol: "push"}, folder: "agent", wrong: []string{"/sandbox/hostFolder"}},
		"a folder that climbs":      {adapter: runtime.Adapter{Protocol: "push"}, folder: "/srv/../etc", wrong: []string{"/sandbox/hostFolder"}},
		"the whole host":            {adapter: runtime.Adapter{Protocol: "push"}, folder: "/", wrong: []string{"/sandbox/hostFolder"}},
		"a workspace over the code": {adapter: runtime.Adapter{Protocol: "push"}, workspace: "/agent/work", wrong: []string{"/workspace/path"}},
		"a workspace with a size":   {adapter: runtime.Adapter{Protocol: "push"}, workspace: "/work 5Gi"},
		"a size that is no number":  {adapter: runtime.Adapter{Protocol: "push"}, workspace: "/work big", wrong: []string{"/workspace/size"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := runtime.Spec{
				Name: "r", Adapter: tc.adapter, Entrypoints: tc.entrypoints,
				Sandbox: runtime.Sandbox{Command: []string{"agent"}, HostFolder: tc.folder},
			}
			if tc.workspace != "" {
				path, size, _ := strings.Cut(tc.workspace, " ")
				spec.Workspace = &runtime.Workspace{Path: path, Size: size}
			}
			_, found := recipe.Rules{}.Checked(spec)
			var wrong []string
			for _, w := range found {
				wrong = append(wrong, w.Pointer)
			}
			if !slices.Equal(wrong, tc.wrong) {
				t.Errorf("wrong are %v, want %v", wrong, tc.wrong)
			}
		})
	}
}
