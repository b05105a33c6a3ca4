package main

import (
	"bytes"
	_ "embed"
	"text/template"
)

//go:embed formula.rb.tmpl
var formulaText string

var formulaTemplate = template.Must(template.New("formula").Parse(formulaText))

// formulaSystem is an "on_macos" or "on_linux" of a formula.
type formulaSystem struct {
	Name     string
	Archives []formulaArchive
}

type formulaArchive struct{ CPU, URL, Sum string }

// formula writes the Homebrew formula, which installs the archives of macOS and Linux.
func (b *build) formula() error {
	var systems []formulaSystem
	for _, s := range []struct{ os, name string }{{"darwin", "macos"}, {"linux", "linux"}} {
		archives, err := b.formulaArchives(s.os)
		if err != nil {
			return err
		}
		if len(archives) > 0 {
			systems = append(systems, formulaSystem{Name: s.name, Archives: archives})
		}
	}
	var out bytes.Buffer
	err := formulaTemplate.Execute(&out, map[string]any{
		"Summary": summary, "Homepage": homepage, "Licence": licence,
		"Version": b.version.semver(), "Tag": b.version.tag, "Systems": systems,
	})
	if err != nil {
		return err
	}
	return b.write("fsm-proxy.rb", out.Bytes())
}

func (b *build) formulaArchives(os string) ([]formulaArchive, error) {
	var archives []formulaArchive
	for _, t := range b.targets {
		if t.os != os {
			continue
		}
		name := b.archiveName(t) + ".tar.gz"
		sum, err := b.sum(name)
		if err != nil {
			return nil, err
		}
		cpu := map[string]string{"amd64": "intel", "arm64": "arm"}[t.arch]
		archives = append(archives, formulaArchive{CPU: cpu, URL: homepage + "/releases/download/" + b.version.tag + "/" + name, Sum: sum})
	}
	return archives, nil
}
