package console_test

import (
	"bytes"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/services/gateway/console"
)

// maxLines keeps every module small enough to be read at once.
const maxLines = 300

// read gives all files of the console by their path.
func read(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := fs.WalkDir(console.Files(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[name], err = fs.ReadFile(console.Files(), name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var (
	imports   = regexp.MustCompile(`(?m)^(?:import|export)\b[^;]*? from '([^']+)';|^import\{[^}]*\}from"([^"]+)"`)
	refers    = regexp.MustCompile(`(?:src|href)="([^"]*)"`)
	inlined   = regexp.MustCompile(`(?i)<script(?:\s[^>]*)?>[^<]|<style|\sstyle=|\son[a-z]+=|javascript:`)
	elements  = regexp.MustCompile(`<[a-z]+[^>]*\sstyle=`)
	risky     = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|new Function\b`)
	elsewhere = regexp.MustCompile(`(?:@import|url\()`)
)

// Without a build step nothing but this finds a module that names a file which
// isn't there, or a bare name, which no browser resolves.
func TestModulesImportWhatIsThere(t *testing.T) {
	files := read(t)
	seen := 0
	for name, data := range files {
		if ext := path.Ext(name); ext != ".js" && ext != ".mjs" {
			continue
		}
		for _, m := range imports.FindAllSubmatch(data, -1) {
			to := string(m[1]) + string(m[2])
			seen++
			if !strings.HasPrefix(to, "./") && !strings.HasPrefix(to, "../") {
				t.Errorf("%s imports %q: only relative paths can be resolved", name, to)
				continue
			}
			if _, ok := files[path.Join(path.Dir(name), to)]; !ok {
				t.Errorf("%s imports %q, which isn't there", name, to)
			}
		}
	}
	if seen < 50 {
		t.Errorf("found %d imports: the pattern no longer fits the code", seen)
	}
}

// Every module is reached from index.html: what isn't, is dead.
func TestEveryModuleIsUsed(t *testing.T) {
	files := read(t)
	used := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if used[name] {
			return
		}
		used[name] = true
		for _, m := range imports.FindAllSubmatch(files[name], -1) {
			visit(path.Join(path.Dir(name), string(m[1])+string(m[2])))
		}
	}
	for _, m := range refers.FindAllSubmatch(files["index.html"], -1) {
		if _, ok := files[string(m[1])]; !ok {
			t.Errorf("index.html refers to %q, which isn't there", m[1])
		}
		visit(string(m[1]))
	}
	for name := range files {
		if ext := path.Ext(name); (ext == ".js" || ext == ".mjs" || ext == ".css") && !used[name] {
			t.Errorf("%s is loaded by nothing", name)
		}
	}
}

// The Content-Security-Policy forbids inline script and style, and the house rules
// forbid markup from text: text comes from agents.
func TestNothingInlineNothingFromElsewhere(t *testing.T) {
	for name, data := range read(t) {
		switch ext := path.Ext(name); {
		case strings.HasPrefix(name, "vendor/"):
		case ext == ".html":
			if m := inlined.Find(data); m != nil {
				t.Errorf("%s has something inline: %q", name, m)
			}
		case ext == ".css":
			if m := elsewhere.Find(data); m != nil {
				t.Errorf("%s loads something else: %q", name, m)
			}
		case ext == ".js":
			if m := risky.Find(data); m != nil {
				t.Errorf("%s makes markup or code from text: %q", name, m)
			}
			if m := elements.Find(data); m != nil {
				t.Errorf("%s has an inline style: %q", name, m)
			}
		}
		if strings.HasPrefix(name, "js/") && bytes.Contains(data, []byte("://")) {
			t.Errorf("%s names an address outside of this server", name)
		}
	}
}

func TestModulesAreSmallAndSayWhatTheyAre(t *testing.T) {
	for name, data := range read(t) {
		if path.Ext(name) != ".js" {
			continue
		}
		if n := bytes.Count(data, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, more than %d", name, n, maxLines)
		}
		if !bytes.HasPrefix(data, []byte("/**")) && !bytes.HasPrefix(data, []byte("// ")) {
			t.Errorf("%s doesn't begin with what it is for", name)
		}
	}
}

// What is vendored keeps its licence beside it.
func TestVendoredCodeHasItsLicence(t *testing.T) {
	files := read(t)
	for module, licence := range map[string]string{
		"vendor/preact.mjs": "vendor/LICENSE.preact", "vendor/hooks.mjs": "vendor/LICENSE.preact", "vendor/htm.mjs": "vendor/LICENSE.htm",
	} {
		if len(files[module]) == 0 || len(files[licence]) == 0 {
			t.Errorf("%s or %s is missing", module, licence)
		}
		if !bytes.Contains(files["vendor/README.md"], []byte("`"+path.Base(module)+"`")) {
			t.Errorf("vendor/README.md doesn't say where %s comes from", module)
		}
	}
}
