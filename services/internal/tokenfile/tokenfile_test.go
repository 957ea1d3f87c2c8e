package tokenfile

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
)

var alice = Entry{Name: "alice", Token: NewToken(), Roles: []api.Role{"developer"}, Groups: []string{"search"}, Tenants: []string{"default"}}

func TestWrittenIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	bob := Entry{Name: "bob", Token: NewToken(), Roles: []api.Role{"approver"}, Tenants: []string{"default", "other"}}
	for _, want := range [][]Entry{{alice}, {alice, bob}} {
		if err := Write(path, want); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTokensDiffer(t *testing.T) {
	t.Parallel()
	if a, b := NewToken(), NewToken(); a == b || len(a) < MinTokenLength+8 {
		t.Errorf("%s, %s", a, b)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no YAML":       "tokens: [",
		"unknown field": "tokens: [{name: a, token: 0123456789abcdef, tenants: [default], password: x}]",
		"no name":       "tokens: [{token: 0123456789abcdef, tenants: [default]}]",
		"short token":   "tokens: [{name: a, token: short, tenants: [default]}]",
		"no tenants":    "tokens: [{name: a, token: 0123456789abcdef}]",
		"bad tenant":    "tokens: [{name: a, token: 0123456789abcdef, tenants: ['ev.>']}]",
		"bad role":      "tokens: [{name: a, token: 0123456789abcdef, tenants: [default], roles: [root]}]",
		"agents' role":  "tokens: [{name: a, token: 0123456789abcdef, tenants: [default], roles: [agent]}]",
		"twice":         "tokens: [{name: a, token: 0123456789abcdef, tenants: [default]}, {name: b, token: 0123456789abcdef, tenants: [default]}]",
		"too large":     "# " + strings.Repeat("x", maxFileBytes),
	} {
		_, err := Parse([]byte(text))
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%s: the error tells a token: %v", name, err)
		}
	}
}

func TestOthersMayNotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := Write(path, []Entry{alice}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("got %v", err)
	}
	if _, err := Read(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := Write(path, []Entry{{Name: "x"}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("tokens: [{name: a, token: 0123456789abcdef, tenants: [default]}]"))
	f.Add([]byte("tokens: {}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := Parse(data)
		if err == nil && check(entries) != nil {
			t.Error("accepted what can't be written")
		}
	})
}
