package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strings"
)

// comments are those of a file's struct types and their fields, with keys in
// place of the fields' names.
type comments struct {
	text map[string]string // by type, or type and field
	keys map[string]string // by field
}

func readComments(path string) (comments, error) {
	c := comments{text: make(map[string]string), keys: make(map[string]string)}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		return c, err
	}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		for _, spec := range gen.Specs {
			c.read(gen.Doc.Text(), spec.(*ast.TypeSpec))
		}
	}
	return c, nil
}

func (c comments) read(doc string, spec *ast.TypeSpec) {
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	c.text[spec.Name.Name] = doc
	for _, field := range structure.Fields.List {
		name := field.Names[0].Name
		c.text[spec.Name.Name+"."+name] = field.Doc.Text()
		if field.Tag != nil {
			c.keys[name] = reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("yaml")
		}
	}
}

var (
	link = regexp.MustCompile(`\[(\w+)((?:\.\w+)*)\]`)
	word = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|\\w+")
)

// of returns the comment of a field of t, or of t itself, in one line.
func (c comments) of(t reflect.Type, field string) string {
	name := t.Name()
	if field != "" {
		name += "." + field
	}
	text := strings.Join(strings.Fields(c.text[name]), " ")
	text = link.ReplaceAllStringFunc(text, func(s string) string {
		s = strings.Trim(s, "[]")
		if !strings.Contains(s, ".") {
			s = "mqfx." + s
		}
		return code(s)
	})
	return word.ReplaceAllStringFunc(text, func(s string) string {
		if key, ok := c.keys[s]; ok {
			return code(key)
		}
		return s
	})
}
