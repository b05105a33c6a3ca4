package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"strings"
)

// The npm package fsm-proxy is a launcher; the binary is in a package for each system, which npm chooses by os and cpu.

//go:embed fsm-proxy.js
var launcher []byte

// packageReadme is the page that npm and PyPI show.
//
//go:embed package.md
var packageReadme []byte

// npmManifest is a package.json.
type npmManifest struct {
	Name                 string            `json:"name"`
	Version              string            `json:"version"`
	Description          string            `json:"description"`
	License              string            `json:"license"`
	Homepage             string            `json:"homepage"`
	Repository           npmRepository     `json:"repository"`
	Bin                  map[string]string `json:"bin,omitempty"`
	OS                   []string          `json:"os,omitempty"`
	CPU                  []string          `json:"cpu,omitempty"`
	Engines              map[string]string `json:"engines,omitempty"`
	OptionalDependencies map[string]string `json:"optionalDependencies,omitempty"`
	PreferUnplugged      bool              `json:"preferUnplugged,omitempty"` // Yarn has the binary in a folder, not in a zip
}

type npmRepository struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

// npmPackages writes the launcher's package and those of the systems.
func (b *build) npmPackages() error {
	main := b.npmManifest("fsm-proxy", summary)
	main.Bin = map[string]string{"fsm-proxy": "bin/fsm-proxy.js"}
	main.Engines = map[string]string{"node": ">=18"}
	main.OptionalDependencies = map[string]string{}
	for _, t := range b.targets {
		os, cpu := nodeNames(t)
		m := b.npmManifest("@fsm-proxy/"+os+"-"+cpu, "The binary of fsm-proxy for "+os+" on "+cpu)
		m.OS, m.CPU, m.PreferUnplugged = []string{os}, []string{cpu}, true
		if err := b.npmPackage(m, file{name: "bin/" + t.program(), mode: 0o755, data: t.binary}); err != nil {
			return err
		}
		main.OptionalDependencies[m.Name] = m.Version
	}
	return b.npmPackage(main, file{name: "bin/fsm-proxy.js", mode: 0o755, data: launcher}, file{name: "README.md", mode: 0o644, data: packageReadme})
}

func (b *build) npmManifest(name, description string) npmManifest {
	return npmManifest{
		Name: name, Version: b.version.semver(), Description: description, License: licence, Homepage: homepage,
		Repository: npmRepository{Type: "git", URL: "git+" + homepage + ".git"},
	}
}

// npmPackage writes one package under the name that npm pack would give it.
func (b *build) npmPackage(m npmManifest, files ...file) error {
	var manifest bytes.Buffer
	encoder := json.NewEncoder(&manifest)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(m); err != nil {
		return err
	}
	files = append([]file{{name: "package.json", mode: 0o644, data: manifest.Bytes()}, b.licence()}, files...)
	for i := range files {
		files[i].name = "package/" + files[i].name
	}
	data, err := tarball(files, b.time)
	if err != nil {
		return err
	}
	return b.write(strings.NewReplacer("@", "", "/", "-").Replace(m.Name)+"-"+m.Version+".tgz", data)
}

// nodeNames are the names that Node.js has for a system: process.platform and process.arch.
func nodeNames(t target) (os, cpu string) {
	os, cpu = t.os, t.arch
	if os == "windows" {
		os = "win32"
	}
	if cpu == "amd64" {
		cpu = "x64"
	}
	return os, cpu
}
