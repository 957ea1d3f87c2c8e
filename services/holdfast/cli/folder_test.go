package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// A folder is meant from where its file lies; all else stays as it was written.
func TestRooted(t *testing.T) {
	t.Parallel()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ file, body, want, wrong string }{
		"beside the file": {"x/runtime.yaml", "name: a\nsandbox: {hostFolder: .}\n", `"hostFolder":"` + here + `/x"`, ""},
		"above the file":  {"/srv/x/runtime.yaml", "sandbox: {hostFolder: ../y, command: [z]}", `{"command":["z"],"hostFolder":"/srv/y"}`, ""},
		"absolute":        {"/srv/x/runtime.yaml", "sandbox: {hostFolder: /y} # as it is", "sandbox: {hostFolder: /y} # as it is", ""},
		"none":            {"/srv/x/policy.yaml", "name: a # as it is", "name: a # as it is", ""},
		"from the input":  {"-", "sandbox: {hostFolder: x}", "", "make it absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := rooted(tc.file, []byte(tc.body))
			if tc.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("%s, %v; want %q", got, err, tc.wrong)
				}
				return
			}
			if err != nil || !strings.Contains(string(got), tc.want) {
				t.Errorf("%s, %v; want %s", got, err, tc.want)
			}
		})
	}
}
