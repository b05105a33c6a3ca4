package main

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/apk"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const (
	homepage = "https://github.com/fsm-proxy/fsm-proxy"
	summary  = "A state machine in front of any MCP server"
	licence  = "Apache-2.0"
)

// linuxPackages writes a deb, an rpm and an apk for each Linux. They have no scripts.
func (b *build) linuxPackages() error {
	packagers := map[string]nfpm.Packager{"deb": deb.Default, "rpm": rpm.DefaultRPM, "apk": apk.Default}
	for _, t := range b.targets {
		if t.os != "linux" {
			continue
		}
		for _, ending := range []string{"deb", "rpm", "apk"} {
			data, err := b.linuxPackage(t, ending, packagers[ending])
			if err != nil {
				return err
			}
			if err := b.write(b.archiveName(t)+"."+ending, data); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *build) linuxPackage(t target, ending string, packager nfpm.Packager) ([]byte, error) {
	folder, err := os.MkdirTemp("", "fsm-proxy-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	info := &nfpm.Info{
		Name: "fsm-proxy", Arch: t.arch, Platform: "linux",
		Version: b.version.number, VersionSchema: "none", Prerelease: b.version.prerelease(), Release: "1",
		Section: "net", Priority: "optional", Maintainer: "fsm-proxy <" + homepage + "/issues>",
		Description: summary, Homepage: homepage, License: licence, MTime: b.time,
	}
	info.RPM.BuildHost = "localhost"
	if ending == "apk" {
		info.Prerelease = b.version.alpine()
	}
	for _, f := range append([]file{{name: "fsm-proxy", mode: 0o755, data: t.binary}}, b.shared...) {
		destination := linuxPath(ending, f.name)
		if path.Ext(destination) == ".gz" {
			if f.data, err = gzipped(f.data); err != nil {
				return nil, err
			}
		}
		source := filepath.Join(folder, strings.ReplaceAll(f.name, "/", "_"))
		if err := os.WriteFile(source, f.data, 0o644); err != nil {
			return nil, err
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: source, Destination: destination,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode, MTime: b.time},
		})
	}
	var out bytes.Buffer
	err = packager.Package(nfpm.WithDefaults(info), &out)
	return out.Bytes(), err
}

// linuxPath is where a package has a file.
func linuxPath(ending, name string) string {
	zsh := "/usr/share/zsh/site-functions/"
	licence := "/usr/share/licenses/fsm-proxy/LICENSE"
	if ending == "deb" {
		zsh, licence = "/usr/share/zsh/vendor-completions/", "/usr/share/doc/fsm-proxy/copyright"
	}
	switch folder, base := path.Split(name); {
	case name == "fsm-proxy":
		return "/usr/bin/fsm-proxy"
	case name == "LICENSE":
		return licence
	case name == "completions/fsm-proxy.bash":
		return "/usr/share/bash-completion/completions/fsm-proxy"
	case name == "completions/_fsm-proxy":
		return zsh + base
	case name == "completions/fsm-proxy.fish":
		return "/usr/share/fish/vendor_completions.d/" + base
	case folder == "man/":
		return "/usr/share/man/man1/" + base + ".gz"
	case folder == "policies/":
		return "/usr/share/fsm-proxy/" + name
	}
	return "/usr/share/doc/fsm-proxy/" + name
}
