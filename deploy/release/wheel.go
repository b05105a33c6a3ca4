package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// wheelTags are the systems as Python's packaging names them. The binaries for Linux are static, so the oldest tags of
// both C libraries hold; Go needs the macOS.
var wheelTags = map[string]string{
	"linux/amd64":   "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
	"linux/arm64":   "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
	"darwin/amd64":  "macosx_13_0_x86_64",
	"darwin/arm64":  "macosx_13_0_arm64",
	"windows/amd64": "win_amd64",
	"windows/arm64": "win_arm64",
}

// wheels writes one wheel for each system, with the binary as a script: pip and uv put it beside Python's own.
func (b *build) wheels() error {
	for _, t := range b.targets {
		tags, ok := wheelTags[t.os+"/"+t.arch]
		if !ok {
			return fmt.Errorf("no wheel is known for %s/%s", t.os, t.arch)
		}
		name := "fsm_proxy-" + b.version.python()
		licence := b.licence()
		licence.name = name + ".dist-info/licenses/LICENSE"
		files := []file{
			{name: name + ".data/scripts/" + t.program(), mode: 0o755, data: t.binary},
			{name: name + ".dist-info/METADATA", mode: 0o644, data: b.wheelMetadata()},
			{name: name + ".dist-info/WHEEL", mode: 0o644, data: wheelFile(tags)},
			licence,
		}
		files = append(files, file{name: name + ".dist-info/RECORD", mode: 0o644, data: wheelRecord(files, name)})
		data, err := zipped(files, b.time)
		if err != nil {
			return err
		}
		if err := b.write(name+"-py3-none-"+tags+".whl", data); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) wheelMetadata() []byte {
	return fmt.Appendf(nil, `Metadata-Version: 2.4
Name: fsm-proxy
Version: %s
Summary: %s
License-Expression: %s
License-File: LICENSE
Project-URL: Homepage, %s
Requires-Python: >=3.8
Description-Content-Type: text/markdown

%s`, b.version.python(), summary, licence, homepage, packageReadme)
}

// wheelFile names one tag a line, where the wheel's own name has them all.
func wheelFile(tags string) []byte {
	var out bytes.Buffer
	out.WriteString("Wheel-Version: 1.0\nGenerator: fsm-proxy\nRoot-Is-Purelib: false\n")
	for _, tag := range bytes.Split([]byte(tags), []byte(".")) {
		fmt.Fprintf(&out, "Tag: py3-none-%s\n", tag)
	}
	return out.Bytes()
}

// wheelRecord lists the files with their sums, and itself without.
func wheelRecord(files []file, name string) []byte {
	var out bytes.Buffer
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&out, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	fmt.Fprintf(&out, "%s.dist-info/RECORD,,\n", name)
	return out.Bytes()
}
