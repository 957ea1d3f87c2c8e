package archtest

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// contracts are methods whose meaning is that of the interface they satisfy;
// a comment on each would say it again and nothing more.
var contracts = []string{
	"Error", "String", "Unwrap", "Is", "As",
	"MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "LogValue",
	"Len", "Less", "Swap",
}

// checkDocs finds packages and exported names without a doc comment.
func checkDocs(t *tree) []string {
	var findings []string
	documented := map[string]bool{}
	first := map[string]*file{}
	for _, f := range t.files {
		if f.syntax == nil || f.isTest() {
			continue
		}
		dir := f.dir()
		if first[dir] == nil {
			first[dir] = f
		}
		documented[dir] = documented[dir] || says(f.syntax.Doc)
		if !f.generated {
			findings = append(findings, undocumented(t, f)...)
		}
	}
	for dir, f := range first {
		if !documented[dir] {
			findings = append(findings, t.at(f.syntax.Name.Pos(), "package %s (%s) has no doc comment", f.syntax.Name.Name, dir))
		}
	}
	slices.Sort(findings)
	return findings
}

// undocumented finds the exported names of one file that have no comment.
func undocumented(t *tree, f *file) []string {
	var findings []string
	for _, decl := range f.syntax.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			receiver := receiverName(d)
			if !d.Name.IsExported() || says(d.Doc) ||
				receiver != "" && (!ast.IsExported(receiver) || slices.Contains(contracts, d.Name.Name)) {
				continue
			}
			findings = append(findings, t.at(d.Pos(), "%s has no doc comment", strings.TrimPrefix(receiver+"."+d.Name.Name, ".")))
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				for _, name := range bare(d, spec) {
					findings = append(findings, t.at(name.Pos(), "%s has no doc comment", name.Name))
				}
			}
		}
	}
	return findings
}

// bare lists the exported names of a spec that nothing documents. A comment on
// a group of constants or variables, or at the line's end, documents them; each
// type needs its own.
func bare(d *ast.GenDecl, spec ast.Spec) []*ast.Ident {
	var names []*ast.Ident
	switch s := spec.(type) {
	case *ast.TypeSpec:
		alone := !d.Lparen.IsValid()
		if s.Name.IsExported() && !says(s.Doc) && !(alone && says(d.Doc)) {
			names = append(names, s.Name)
		}
	case *ast.ValueSpec:
		if says(d.Doc) || says(s.Doc) || says(s.Comment) {
			return nil
		}
		for _, name := range s.Names {
			if name.IsExported() {
				names = append(names, name)
			}
		}
	}
	return names
}

// says tells a comment with words from one that only directs a tool, like
// //go:embed: CommentGroup.Text leaves those out.
func says(comment *ast.CommentGroup) bool {
	return comment != nil && strings.TrimSpace(comment.Text()) != ""
}

// receiverName is the name of a method's type, without pointer and type
// parameters, or "" for a function.
func receiverName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	expr := d.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.ParenExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

func TestEverythingExportedIsDocumented(t *testing.T) {
	t.Parallel()
	hold(t, checkDocs, "write a comment above it that says what its user must know: shape, units, errors, "+
		"the source of the rule; or unexport it")
}

func TestDocsRuleFinds(t *testing.T) {
	t.Parallel()
	const head = "// Package p does.\npackage p\n\n"
	source := func(text string) map[string]string { return map[string]string{"events/p/a.go": text} }
	prove(t, checkDocs, []planted{
		{"package", source("package p\n"), "package p (events/p) has no doc comment"},
		{"package with a directive only", source("//go:build linux\n\npackage p\n"), "package p"},
		{"func", source(head + "func Do() {}\n"), "a.go:4: Do has no doc comment"},
		{"directive is no comment", source(head + "//go:noinline\nfunc Do() {}\n"), "Do has"},
		{"method", source(head + "// T is.\ntype T struct{}\n\nfunc (t *T) Do() {}\n"), "T.Do has"},
		{"method of a generic type", source(head + "// T is.\ntype T[K, V any] struct{}\n\nfunc (t *T[K, V]) Do() {}\n"), "T.Do has"},
		{"type", source(head + "type T int\n"), "T has"},
		{"type in a group", source(head + "// Types.\ntype (\n\tT int\n)\n"), "T has"},
		{"const", source(head + "const Max = 3\n"), "Max has"},
		{"var", source(head + "var ErrGone = error(nil)\n"), "ErrGone has"},

		{"package in another file", map[string]string{"events/p/a.go": "package p\n", "events/p/doc.go": head}, ""},
		{"unexported", source(head + "func do() {}\n\ntype t int\n\nfunc (t) Do() {}\n"), ""},
		{"group of constants", source(head + "// The modes.\nconst (\n\tHold = 1\n\tPark = 2\n)\n"), ""},
		{"at the line's end", source(head + "const (\n\tHold = 1 // keeps asking\n)\n"), ""},
		{"an interface's contract", source(head + "// T is.\ntype T int\n\nfunc (T) Error() string { return \"\" }\n"), ""},
		{"test", map[string]string{"events/p/a_test.go": "package p\n\nfunc Do() {}\n"}, ""},
		{"generated", source("// Code generated by sqlc. DO NOT EDIT.\n\n// Package p does.\npackage p\n\nfunc Do() {}\n"), ""},
	})
}
