package archtest

import (
	"slices"
	"strings"
	"testing"
)

// below names the modules that each module may import.
var below = map[string][]string{
	"events":      {},
	"migrations":  {},
	"api":         {},
	"projections": {"events", "migrations"},
	"services":    {"events", "projections", "api", "migrations"},
}

// roots are the parts of services that put the others together: the one binary,
// and the tests that run the whole program.
var roots = []string{"holdfast", "e2e"}

// installs says whether a folder is the installer's, which beside projections
// and tests is all that knows the migrations: a service finds its tables made.
func installs(dir string) bool {
	return dir == "services/internal/install" || strings.HasPrefix(dir, "services/internal/install/")
}

// service is the part of services that a folder belongs to, "internal" for what
// they share, or "" outside the module.
func service(dir string) string {
	rest, found := strings.CutPrefix(dir, "services/")
	if !found {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// checkImports holds every import of ours to the direction of the layout.
func checkImports(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		if f.syntax == nil {
			continue
		}
		for i, imported := range f.imports() {
			target, found := strings.CutPrefix(imported, ours)
			if !found {
				continue
			}
			if why := refuse(f, target); why != "" {
				findings = append(findings, t.at(f.syntax.Imports[i].Pos(), "%s imports %s: %s", f.dir(), target, why))
			}
		}
	}
	return findings
}

// refuse says why a file may not import a package of ours, or nothing.
func refuse(f *file, target string) string {
	from, _, _ := strings.Cut(f.path, "/")
	to, _, _ := strings.Cut(target, "/")
	allowed, known := below[from]
	if !known {
		return "" // scripts and deploy are tools: nothing imports them
	}
	if from != to && !slices.Contains(allowed, to) {
		return "imports point down, services → projections → events and services → api"
	}

	part, targetPart := service(f.dir()), service(target)
	assembles := slices.Contains(roots, part)
	switch {
	case target == "migrations/pgserver" && f.dir() == "services/internal/postgres":
		return "" // a server knows no schema: dev's Postgres and the tests' are the same code
	case from == "services" && to == "migrations" && !f.isTest() && !assembles && !installs(f.dir()):
		return "only projections, the installer and tests know the migrations"
	case targetPart == "" || targetPart == part || targetPart == "internal" || assembles:
		return ""
	case part == "internal":
		return "what the services share lies below them"
	default:
		return "a service imports no other: they talk by events and commands"
	}
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	hold(t, checkImports, "move what both need down to services/internal/<duty> or events, "+
		"or declare a small interface where it is used and let services/holdfast pass the implementation in")
}

func TestImportsRuleFinds(t *testing.T) {
	t.Parallel()
	importing := func(where, what string) map[string]string {
		return map[string]string{where: "package p\n\nimport _ \"" + ours + what + "\"\n"}
	}
	prove(t, checkImports, []planted{
		{"events from projections", importing("events/a.go", "projections"), "imports point down"},
		{"events from its tests too", importing("events/a_test.go", "services/session"), "imports point down"},
		{"api from events", importing("api/a.go", "events"), "imports point down"},
		{"migrations from events", importing("migrations/pgtest/a.go", "events"), "imports point down"},
		{"projections from services", importing("projections/a.go", "services/internal/x"), "imports point down"},
		{"projections from api", importing("projections/a.go", "api"), "imports point down"},
		{"service from service", importing("services/session/app/a.go", "services/policy"), "a service imports no other"},
		{"service from the binary", importing("services/session/a.go", "services/holdfast/cli"), "a service imports no other"},
		{"service's name as prefix", importing("services/run/a.go", "services/runner"), "a service imports no other"},
		{"shared from service", importing("services/internal/x/a.go", "services/session"), "lies below"},
		{"service from migrations", importing("services/gateway/a.go", "migrations"), "know the migrations"},

		{"within a module", importing("events/eventlog/a.go", "events/session"), ""},
		{"within a service", importing("services/session/app/a.go", "services/session/internal/decider"), ""},
		{"projections from events", importing("projections/a.go", "events"), ""},
		{"projections from migrations", importing("projections/a.go", "migrations"), ""},
		{"service from shared", importing("services/session/a.go", "services/internal/x"), ""},
		{"service from api", importing("services/gateway/a.go", "api"), ""},
		{"service's test from migrations", importing("services/gateway/a_test.go", "migrations/pgtest"), ""},
		{"dev's Postgres from the server", importing("services/internal/postgres/a.go", "migrations/pgserver"), ""},
		{"dev's Postgres from the schema", importing("services/internal/postgres/a.go", "migrations"), "know the migrations"},
		{"installer from migrations", importing("services/internal/install/a.go", "migrations"), ""},
		{"binary from service", importing("services/holdfast/a.go", "services/session"), ""},
		{"whole program's test from service", importing("services/e2e/faults/a.go", "services/session"), ""},
		{"another's module", map[string]string{"events/a.go": "package p\n\nimport _ \"fmt\"\n"}, ""},
	})
}
