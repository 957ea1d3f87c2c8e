package archtest

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// pure says whether a package has to be a function of its arguments: the
// deciders of the services, and the folds that they share.
func pure(dir string) bool {
	return slices.Contains(strings.Split(dir, "/"), "decider") ||
		slices.Contains([]string{"events/session", "events/policy", "events/runtime"}, dir)
}

// impure are packages, with all below them, that give a decider something that
// a replay would not give it again.
var impure = []string{
	"crypto/rand", "math/rand", "os", "net", "syscall", "log", "database/sql",
	"github.com/nats-io", "github.com/jackc", "github.com/google/uuid", "golang.org/x/sys",
}

// clocks are the functions of package time that ask what time it is, or wait.
var clocks = []string{
	"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until",
}

// checkPurity finds clocks, random sources and the outside world in deciders
// and folds.
func checkPurity(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		if f.syntax == nil || f.isTest() || !pure(f.dir()) {
			continue
		}
		timeName := ""
		for i, imported := range f.imports() {
			spec := f.syntax.Imports[i]
			if imported == "time" {
				timeName = localName(spec, imported)
			}
			for _, root := range impure {
				if imported == root || strings.HasPrefix(imported, root+"/") {
					findings = append(findings, t.at(spec.Pos(), "imports %s", imported))
				}
			}
		}
		if timeName == "" {
			continue
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := selector.X.(*ast.Ident); ok && x.Name == timeName && slices.Contains(clocks, selector.Sel.Name) {
				findings = append(findings, t.at(selector.Pos(), "uses time.%s", selector.Sel.Name))
			}
			return true
		})
	}
	return findings
}

// localName is what an import is called in its file.
func localName(spec *ast.ImportSpec, imported string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	return path.Base(imported)
}

func TestDecidersArePure(t *testing.T) {
	t.Parallel()
	hold(t, checkPurity, "take it as an argument: now, and ids made before, are part of the command; "+
		"what must be read or sent belongs to the app around the decider")
}

func TestPurityRuleFinds(t *testing.T) {
	t.Parallel()
	source := func(where, text string) map[string]string { return map[string]string{where: "package p\n\n" + text} }
	const decider = "services/session/internal/decider/decide.go"
	prove(t, checkPurity, []planted{
		{"clock", source(decider, "import \"time\"\n\nvar now = time.Now()\n"), "uses time.Now"},
		{"clock as a value", source(decider, "import \"time\"\n\nvar now = time.Now\n"), "uses time.Now"},
		{"clock by another name", source(decider, "import clock \"time\"\n\nvar now = clock.Since\n"), "uses time.Since"},
		{"random", source(decider, "import _ \"math/rand/v2\"\n"), "imports math/rand/v2"},
		{"network", source(decider, "import _ \"net/http\"\n"), "imports net/http"},
		{"log of events", source(decider, "import _ \"github.com/nats-io/nats.go\"\n"), "imports github.com/nats-io/nats.go"},
		{"fold", source("events/session/evolve.go", "import _ \"os\"\n"), "imports os"},

		{"duration", source(decider, "import \"time\"\n\nvar limit = time.Second\n"), ""},
		{"method of a value", source(decider, "import \"time\"\n\nfunc late(a, b time.Time) bool { return a.After(b) }\n"), ""},
		{"prefix of a name", source(decider, "import _ \"netip\"\n"), ""},
		{"test", source("services/session/internal/decider/decide_test.go", "import _ \"os\"\n"), ""},
		{"elsewhere", source("services/session/internal/app/app.go", "import _ \"os\"\n"), ""},
	})
}
