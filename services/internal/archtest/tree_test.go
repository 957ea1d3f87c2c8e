package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// ours is what every import path of this repository begins with.
const ours = "github.com/holdfast-io/holdfast/"

// A file is one file of the tree. Its path has slashes and is relative to the
// root of the repository.
type file struct {
	path string
	text []byte
	// syntax is nil for all but Go files.
	syntax    *ast.File
	generated bool
}

// dir is the folder of the file, which for a Go file is its import path
// without the repository's prefix.
func (f *file) dir() string { return path.Dir(f.path) }

// isTest says whether only `go test` compiles the file.
func (f *file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// imports lists the import paths of a Go file.
func (f *file) imports() []string {
	if f.syntax == nil {
		return nil
	}
	var paths []string
	for _, spec := range f.syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser accepted it, so this can't be
		}
		paths = append(paths, imported)
	}
	return paths
}

// A tree is the repository, or a small one planted by a test.
type tree struct {
	files     []*file
	positions *token.FileSet
}

// at makes a finding at a place in a Go file: where, what, and what to do.
func (t *tree) at(pos token.Pos, format string, args ...any) string {
	position := t.positions.Position(pos)
	return fmt.Sprintf("%s:%d: %s", position.Filename, position.Line, fmt.Sprintf(format, args...))
}

// skipped are folders with nothing in them that people of this repository wrote
// for others to read.
var skipped = []string{".git", "bin", "node_modules", "testdata", "vendor"}

// read loads a tree. It fails on Go that doesn't parse, since a file that was
// left out would pass every rule.
func read(root fs.FS) (*tree, error) {
	t := &tree{positions: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains(skipped, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		f := &file{path: name, text: text}
		if path.Ext(name) == ".go" {
			f.syntax, err = parser.ParseFile(t.positions, name, text, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return fmt.Errorf("parse: %w", err)
			}
			f.generated = ast.IsGenerated(f.syntax)
		} else {
			first, _, _ := bytes.Cut(text, []byte("\n"))
			f.generated = bytes.Contains(first, []byte("Code generated"))
		}
		t.files = append(t.files, f)
		return nil
	})
	return t, err
}

// repository loads the tree that this test stands in.
func repository(t *testing.T) *tree {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.work")); err == nil {
			break
		}
		parent := filepath.Dir(root)
		if parent == root {
			t.Fatal("no go.work above the test's folder: run it in a checkout of the repository")
		}
		root = parent
	}
	loaded, err := read(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// A rule looks at a tree and says what is wrong with it, one line for each
// place.
type rule func(*tree) []string

// hold applies a rule to this repository. Advice says what to do about any of
// the findings.
func hold(t *testing.T, check rule, advice string) {
	t.Helper()
	findings := check(repository(t))
	for _, finding := range findings {
		t.Error(finding)
	}
	if len(findings) > 0 {
		t.Log("what to do: " + advice)
	}
}

// A planted tree has one fault, or none that the rule may find.
type planted struct {
	name string
	// files are sources by path.
	files map[string]string
	// want is a part of the only finding; empty for no finding.
	want string
}

// prove applies a rule to planted trees.
func prove(t *testing.T, check rule, cases []planted) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			source := fstest.MapFS{}
			for name, text := range test.files {
				source[name] = &fstest.MapFile{Data: []byte(text)}
			}
			loaded, err := read(source)
			if err != nil {
				t.Fatal(err)
			}
			findings := check(loaded)
			switch {
			case test.want == "" && len(findings) > 0:
				t.Errorf("found fault where there is none: %q", findings)
			case test.want != "" && (len(findings) != 1 || !strings.Contains(findings[0], test.want)):
				t.Errorf("findings %q, want one with %q", findings, test.want)
			}
		})
	}
}

func TestReadRefusesWhatDoesNotParse(t *testing.T) {
	t.Parallel()
	_, err := read(fstest.MapFS{"events/broken.go": {Data: []byte("package events\nfunc {")}})
	if err == nil {
		t.Error("a file that doesn't parse was passed over, and with it every rule")
	}
}

func TestReadSeesTheRepository(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for _, f := range repository(t).files {
		if f.syntax != nil {
			module, _, _ := strings.Cut(f.path, "/")
			seen[module]++
		}
	}
	for _, module := range []string{"api", "events", "migrations", "projections", "services"} {
		if seen[module] == 0 {
			t.Errorf("no Go file of %s was read, so no rule holds there", module)
		}
	}
}
