package cli

import (
	"slices"
	"strings"
	"testing"
)

// A file has as many documents as it has between its separators; nothing is none.
func TestDocumentsOfAFile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file string
		want []string // names; nil for a refusal
	}{
		"one":                        {"name: a # as it is\n", []string{"a"}},
		"two":                        {"name: a\n---\nname: b\n", []string{"a", "b"}},
		"JSON":                       {`{"name": "a"}`, []string{"a"}},
		"a separator first":          {"---\nname: a\n", []string{"a"}},
		"windows":                    {"name: a\r\n---\r\nname: b\r\n", []string{"a", "b"}},
		"empty ones":                 {"---\n# nothing\n---\nname: a\n---\n", []string{"a"}},
		"words behind the separator": {"--- # the first\nname: a\n--- {name: b}\n", []string{"a", "b"}},
		"a line in a string":         {"name: a\ntext: |\n  ---\n  x\n", []string{"a"}},
		"a word that begins so":      {"name: a\ntext: x\n----: y\n", []string{"a"}},
		"nothing":                    {"# nothing\n", nil},
		"one without a name":         {"name: a\n---\nkind: agent\n", nil},
		"one that is no YAML":        {"name: a\n---\n[\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			texts, err := readFile("-", strings.NewReader(tc.file))
			var documents []document
			if err == nil {
				documents, err = readDocuments(t.Context(), nil, "-", texts, nil)
			}
			if err != nil {
				if tc.want != nil {
					t.Error(err)
				}
				return
			}
			var names []string
			for _, d := range documents {
				names = append(names, d.name)
			}
			if !slices.Equal(names, tc.want) {
				t.Errorf("documents are %q, want %q", names, tc.want)
			}
		})
	}
}
