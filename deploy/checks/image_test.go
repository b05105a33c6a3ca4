package checks

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	entrypoint = "/ko-app/fsm-proxy" // where ko puts a program, and so the Dockerfile
	koVersion  = "v0.19.1"
)

// ko is what .ko.yaml says.
type ko struct {
	DefaultBaseImage string
	DefaultPlatforms []string
	Builds           []struct {
		ID, Main            string
		Env, Flags, Ldflags []string
	}
}

func readKo(t *testing.T) ko {
	t.Helper()
	var k ko
	if err := yaml.UnmarshalStrict(readFile(t, "..", ".ko.yaml"), &k); err != nil {
		t.Fatal(err)
	}
	return k
}

// instructionsOf are a Dockerfile's, of one line each.
func instructionsOf(t *testing.T, path ...string) []string {
	t.Helper()
	text := strings.ReplaceAll(string(readFile(t, path...)), "\\\n", "")
	var found []string
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, "#") {
			found = append(found, line)
		}
	}
	return found
}

// Base, flags, environment, program, user and path are the same, whichever of the two is used.
func TestKoAndDockerBuildTheSame(t *testing.T) {
	k, docker := readKo(t), instructionsOf(t, "Dockerfile")
	build := k.Builds[0]
	ldflags := strings.ReplaceAll(strings.Join(build.Ldflags, " "), "{{.Env.VERSION}}", "$VERSION")
	for _, want := range []string{
		"RUN " + strings.Join(build.Env, " ") + " GOOS=$TARGETOS GOARCH=$TARGETARCH go build " + strings.Join(build.Flags, " ") +
			` -ldflags "` + ldflags + `" -o ` + entrypoint + " " + build.Main,
		"FROM " + k.DefaultBaseImage,
		"COPY --from=build " + entrypoint + " " + entrypoint,
		"USER 65532",
		`ENTRYPOINT ["` + entrypoint + `"]`,
	} {
		if !slices.Contains(docker, want) {
			t.Errorf("the Dockerfile lacks\n%s\nand has\n%s", want, strings.Join(docker, "\n"))
		}
	}
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		if !slices.Contains(k.DefaultPlatforms, platform) {
			t.Errorf("ko does not build for %s", platform)
		}
	}
	release := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(readFile(t, "..", "go.mod"))
	if want := "FROM --platform=$BUILDPLATFORM golang:" + string(release[1]) + " AS build"; docker[0] != want {
		t.Errorf("the Dockerfile builds with %q; go.mod names %q", docker[0], want)
	}
}

// Release and image are built with the same flags.
func TestImageHasTheFlagsOfTheRelease(t *testing.T) {
	makefile := string(readFile(t, "..", "Makefile"))
	build := readKo(t).Builds[0]
	ldflags := strings.ReplaceAll(strings.Join(build.Ldflags, " "), "{{.Env.VERSION}}", "$(VERSION)")
	if !strings.Contains(makefile, ":= "+ldflags+"\n") || !strings.Contains(makefile, "go build "+strings.Join(build.Flags, " ")+" ") {
		t.Errorf("the Makefile does not build with %q and %q", build.Flags, ldflags)
	}
	if !strings.Contains(makefile, "github.com/google/ko@"+koVersion+" ") {
		t.Errorf("the Makefile makes images with another ko than %s", koVersion)
	}
}

// root is the repository's.
func root(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join(deploy, ".."))
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// run runs a command in the repository's root and returns its output.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	return runIn(t, root(t), env, name, args...)
}

func runIn(t *testing.T, folder string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
