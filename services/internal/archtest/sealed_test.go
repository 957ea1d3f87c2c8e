package archtest

import (
	"go/ast"
	"strings"
	"testing"
)

// sealedMark makes go-check-sumtype, in make verify, look at every switch over
// an interface.
const sealedMark = "//sumtype:decl"

// checkSealed finds sealed interfaces, those that an unexported method keeps to
// their package, without the mark: to forget an event in a switch over them
// would then go unnoticed.
func checkSealed(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		if f.syntax == nil || f.isTest() || f.generated {
			continue
		}
		for _, decl := range f.syntax.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range d.Specs {
				s, ok := spec.(*ast.TypeSpec)
				if ok && s.Name.IsExported() && sealed(s.Type) && !marked(d.Doc) && !marked(s.Doc) {
					findings = append(findings, t.at(s.Pos(), "%s is sealed and has no %s", s.Name.Name, sealedMark))
				}
			}
		}
	}
	return findings
}

// sealed says whether a type is an interface with an unexported method.
func sealed(expr ast.Expr) bool {
	i, ok := expr.(*ast.InterfaceType)
	if !ok {
		return false
	}
	for _, method := range i.Methods.List {
		for _, name := range method.Names {
			if !name.IsExported() {
				return true
			}
		}
	}
	return false
}

func marked(comment *ast.CommentGroup) bool {
	if comment == nil {
		return false
	}
	for _, line := range comment.List {
		if strings.TrimSpace(line.Text) == sealedMark {
			return true
		}
	}
	return false
}

func TestSealedInterfacesAreMarked(t *testing.T) {
	t.Parallel()
	hold(t, checkSealed, "end its doc comment with a line "+sealedMark+", after an empty comment line")
}

func TestSealedRuleFinds(t *testing.T) {
	t.Parallel()
	source := func(text string) map[string]string {
		return map[string]string{"events/session/a.go": "package session\n\n" + text}
	}
	prove(t, checkSealed, []planted{
		{"sealed", source("// Event is.\ntype Event interface{ isEvent() }\n"), "Event is sealed"},
		{"sealed with more methods", source("type Event interface {\n\tType() string\n\tisEvent()\n}\n"), "Event is sealed"},
		{"mark in the text", source("// Event is no //sumtype:decl.\ntype Event interface{ isEvent() }\n"), "Event is sealed"},

		{"marked", source("// Event is.\n//\n//sumtype:decl\ntype Event interface{ isEvent() }\n"), ""},
		{"open", source("type Reader interface{ Read() }\n"), ""},
		{"unexported", source("type event interface{ isEvent() }\n"), ""},
	})
}
