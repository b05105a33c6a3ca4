package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/blakesmith/ar"
	"github.com/sassoftware/go-rpmutils"
)

// checkLinux compares what a package installs with what the archive of its system has. Names begin with "/".
func checkLinux(t *testing.T, arch, ending string, files map[string]entry) {
	t.Helper()
	_, binary := unpacked(t, "linux/"+arch)
	want := map[string]fs.FileMode{"/usr/bin/fsm-proxy": 0o755}
	for _, name := range shared(t) {
		want[linuxPath(ending, name)] = 0o644
	}
	got := map[string]fs.FileMode{}
	for name, f := range files {
		got[name] = f.mode
	}
	if !maps.Equal(got, want) {
		t.Errorf("it installs %v", got)
	}
	if !bytes.Equal(files["/usr/bin/fsm-proxy"].data, binary) {
		t.Error("its binary is not that of the archive")
	}
}

// rooted gives all names their "/".
func rooted(files map[string]entry) map[string]entry {
	out := map[string]entry{}
	for name, f := range files {
		out["/"+strings.TrimPrefix(strings.TrimPrefix(name, "."), "/")] = f
	}
	return out
}

func TestDeb(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			members := map[string][]byte{}
			for r := ar.NewReader(bytes.NewReader(read(t, filepath.Join(dist, archive("linux", arch, ".deb"))))); ; {
				h, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if members[h.Name], err = io.ReadAll(r); err != nil {
					t.Fatal(err)
				}
			}
			control := rooted(untargz(t, members["control.tar.gz"]))
			if got := slices.Sorted(maps.Keys(control)); !slices.Equal(got, []string{"/control", "/md5sums"}) {
				t.Errorf("its control files are %v: a script?", got)
			}
			for _, line := range []string{"Package: fsm-proxy\n", "Version: 9.8.7-1\n", "Architecture: " + arch + "\n"} {
				if !strings.Contains(string(control["/control"].data), line) {
					t.Errorf("no %q in\n%s", line, control["/control"].data)
				}
			}
			checkLinux(t, arch, "deb", rooted(untargz(t, members["data.tar.gz"])))
		})
	}
}

// dpkg installs and removes the deb in a folder of its own, where there is a dpkg.
func TestDpkgInstalls(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		return // TestDeb has read it
	}
	root := t.TempDir()
	for _, file := range []string{"status", "available"} {
		write(t, filepath.Join(root, "var/lib/dpkg", file), "")
	}
	write(t, filepath.Join(root, "var/lib/dpkg/info/format"), "1\n")
	write(t, filepath.Join(root, "var/lib/dpkg/updates/.keep"), "")
	dpkg := func(args ...string) string {
		t.Helper()
		args = append([]string{"--root=" + root, "--force-not-root", "--force-script-chrootless", "--log=/dev/null"}, args...)
		return run(t, root, nil, "dpkg", args...)
	}
	dpkg("--install", filepath.Join(dist, archive("linux", runtime.GOARCH, ".deb")))
	program := filepath.Join(root, "usr/bin/fsm-proxy")
	if got := run(t, root, nil, program, "version"); got != versionHere() {
		t.Errorf("it says %q", got)
	}
	run(t, root, nil, program, "check", filepath.Join(root, "usr/share/fsm-proxy/policies/filesystem.yaml"))
	if said := dpkg("--verify", "fsm-proxy"); said != "" {
		t.Errorf("dpkg --verify says %s", said)
	}
	dpkg("--purge", "fsm-proxy")
	if left, err := os.ReadDir(filepath.Join(root, "usr")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestRPM(t *testing.T) {
	for arch, theirs := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		t.Run(arch, func(t *testing.T) {
			pkg, err := rpmutils.ReadRpm(bytes.NewReader(read(t, filepath.Join(dist, archive("linux", arch, ".rpm")))))
			if err != nil {
				t.Fatal(err)
			}
			nevra, err := pkg.Header.GetNEVRA()
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(nevra.Name, " ", nevra.Version, " ", nevra.Release, " ", nevra.Arch); got != "fsm-proxy 9.8.7 1 "+theirs {
				t.Errorf("it is %s", got)
			}
			for name, script := range map[string]int{"pre": rpmutils.PREIN, "post": rpmutils.POSTIN, "preun": rpmutils.PREUN, "postun": rpmutils.POSTUN} {
				if pkg.Header.HasTag(script) {
					t.Errorf("it has a %s script", name)
				}
			}
			checkLinux(t, arch, "rpm", rpmFiles(t, pkg))
		})
	}
}

// rpmFiles are the files of an rpm, each of which belongs to root.
func rpmFiles(t *testing.T, pkg *rpmutils.Rpm) map[string]entry {
	t.Helper()
	payload, err := pkg.PayloadReaderExtended()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]entry{}
	for {
		info, err := payload.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.UserName() != "root" || info.GroupName() != "root" {
			t.Errorf("%s belongs to %s:%s", info.Name(), info.UserName(), info.GroupName())
		}
		if mode := fs.FileMode(info.Mode()); mode&0o040000 == 0 {
			data, err := io.ReadAll(payload)
			if err != nil {
				t.Fatal(err)
			}
			files[info.Name()] = entry{mode & 0o7777, data}
		}
	}
}

func TestAPK(t *testing.T) {
	for arch, theirs := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		t.Run(arch, func(t *testing.T) {
			files := rooted(untargz(t, read(t, filepath.Join(dist, archive("linux", arch, ".apk")))))
			info := string(files["/PKGINFO"].data)
			for _, line := range []string{"pkgname = fsm-proxy\n", "pkgver = 9.8.7-r1\n", "arch = " + theirs + "\n"} {
				if !strings.Contains(info, line) {
					t.Errorf("no %q in\n%s", line, info)
				}
			}
			delete(files, "/PKGINFO") // scripts would stand beside it
			checkLinux(t, arch, "apk", files)
		})
	}
}
