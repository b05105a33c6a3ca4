package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/package-url/packageurl-go"
)

// sboms writes one SBOM for each binary, of the modules that its build info names: they differ by system.
func (b *build) sboms() error {
	for _, t := range b.targets {
		info, err := buildinfo.Read(bytes.NewReader(t.binary))
		if err != nil {
			return err
		}
		var out bytes.Buffer
		encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true)
		if err := encoder.EncodeVersion(b.bom(t, info), cyclonedx.SpecVersion1_6); err != nil {
			return err
		}
		if err := b.write(b.archiveName(t)+".cdx.json", out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) bom(t target, info *debug.BuildInfo) *cyclonedx.BOM {
	sum := sha256.Sum256(t.binary)
	program := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: info.Main.Path, Version: b.version.tag,
		BOMRef: purl(info.Main.Path, b.version.tag), PackageURL: purl(info.Main.Path, b.version.tag),
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: licence}}},
		Hashes:   &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}
	components := []cyclonedx.Component{library("std", info.GoVersion[len("go"):])}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, library(m.Path, m.Version))
	}
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: b.time.Format(time.RFC3339), Component: &program}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: program.BOMRef, Dependencies: &refs}}
	return bom
}

// library is a module, or the standard library under the name that vulnerability databases have for it.
func library(module, version string) cyclonedx.Component {
	return cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, Name: module, Version: version, BOMRef: purl(module, version), PackageURL: purl(module, version),
	}
}

// purl is a module's package URL.
func purl(module, version string) string {
	namespace, name := path.Split(module)
	return packageurl.NewPackageURL(packageurl.TypeGolang, strings.ToLower(namespace), strings.ToLower(name), version, nil, "").ToString()
}
