package main

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// What docs/install.md has people type, typed beside the files of a release. apt, dnf, apk and brew are not; TestDeb and
// its like read what they install.
func TestInstallPage(t *testing.T) {
	t.Parallel()
	os, cpu := nodeNames(target{os: runtime.GOOS, arch: runtime.GOARCH})
	ours := strings.NewReplacer("1.2.3", "9.8.7", "linux_amd64", runtime.GOOS+"_"+runtime.GOARCH, "linux-x64", os+"-"+cpu)
	ran := 0
	for _, m := range shellBlock.FindAllSubmatch(read(t, "../../docs/install.md"), -1) {
		block := string(m[1])
		if strings.HasPrefix(block, "go install ") || strings.HasPrefix(block, "sudo ") || strings.HasPrefix(block, "brew ") {
			continue
		}
		ran++
		t.Run(strings.Fields(block)[0], func(t *testing.T) {
			out := run(t, besideTheFiles(t), installEnvironment(t), "bash", "-euo", "pipefail", "-c", ours.Replace(block))
			if strings.Contains(block, "version\n") && !strings.Contains(out, versionHere()) {
				t.Errorf("it prints\n%s", out)
			}
		})
	}
	if ran != 4 {
		t.Errorf("%d blocks were run", ran)
	}
}

// besideTheFiles is a folder with all files of the release.
func besideTheFiles(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	files, err := filepath.Glob(filepath.Join(dist, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Link(f, filepath.Join(folder, filepath.Base(f))); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// installEnvironment is where global packages go to a folder of the test, and no registry answers.
func installEnvironment(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	run(t, home, nil, tool(t, "python"), "-m", "venv", "python")
	path := strings.Join([]string{
		filepath.Join(home, "npm", "bin"), filepath.Join(home, "python", "bin"), filepath.Dir(tool(t, "uvx")), os.Getenv("PATH"),
	}, string(filepath.ListSeparator))
	env := append(npmEnvironment(t, serveRegistry(t, nil).URL), uvEnvironment(t)...)
	return append(env, "PATH="+path, "npm_config_prefix="+filepath.Join(home, "npm"), "PIP_FIND_LINKS=")
}

var inputRow = regexp.MustCompile("(?m)^\\| `([a-z]+)` \\|")

// The page's table has each input of the action.
func TestInstallPageInputs(t *testing.T) {
	named := map[string]bool{}
	_, section, _ := strings.Cut(string(read(t, "../../docs/install.md")), "## In a workflow on GitHub")
	for _, m := range inputRow.FindAllStringSubmatch(section, -1) {
		named[m[1]] = true
	}
	inputs := readAction(t).Inputs
	for name := range inputs {
		if !named[name] {
			t.Errorf("the page does not name the input %s", name)
		}
	}
	if len(named) != len(inputs) {
		t.Errorf("the page names %v", named)
	}
}
