package checks

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// What ko makes of .ko.yaml: for both systems a static program of the version asked for, that the container starts as
// 65532. The base is one of our own; the real one adds certificates and time zones.
func TestKoBuild(t *testing.T) {
	registry := startRegistry(t)
	pushBase(t, registry)
	run(t, []string{"VERSION=v9.9.9", "KO_DOCKER_REPO=" + registry + "/fsm-proxy", "KO_DEFAULTBASEIMAGE=" + registry + "/static:nonroot"},
		"go", "run", "github.com/google/ko@"+koVersion, "build", "--bare", "--sbom=none", "./cmd/fsm-proxy")
	images := pushed(t, registry+"/fsm-proxy")
	if len(images) != len(readKo(t).DefaultPlatforms) {
		t.Errorf("%d images for %v", len(images), readKo(t).DefaultPlatforms)
	}
	for platform, image := range images {
		t.Run(platform, func(t *testing.T) { checkImage(t, platform, image) })
	}
}

// startRegistry starts a registry on loopback and returns its address.
func startRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func reference(t *testing.T, image string) name.Reference {
	t.Helper()
	r, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// pushBase pushes an image without files, for both systems, whose user is that of the real base.
func pushBase(t *testing.T, registry string) {
	t.Helper()
	var index v1.ImageIndex = empty.Index
	for _, arch := range []string{"amd64", "arm64"} {
		image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: arch, Config: v1.Config{User: "65532"}})
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	if err := remote.WriteIndex(reference(t, registry+"/static:nonroot"), index); err != nil {
		t.Fatal(err)
	}
}

// pushed are the images behind one name, by platform.
func pushed(t *testing.T, image string) map[string]v1.Image {
	t.Helper()
	index, err := remote.Index(reference(t, image))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		if images[m.Platform.String()], err = index.Image(m.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return images
}

func checkImage(t *testing.T, platform string, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532" || !slices.Equal(config.Config.Entrypoint, []string{entrypoint}) || len(config.Config.Cmd) > 0 {
		t.Errorf("user %q starts %q %q", config.Config.User, config.Config.Entrypoint, config.Config.Cmd)
	}
	program := fileOf(t, image, entrypoint)
	checkStatic(t, program, map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}[platform])
	if !bytes.Contains(program, []byte("v9.9.9")) {
		t.Error("the version is not in it")
	}
	if bytes.Contains(program, []byte(root(t)+"/cmd")) {
		t.Error("paths of the machine that built it are in it")
	}
}

// fileOf is a file in an image, as the container sees it.
func fileOf(t *testing.T, image v1.Image, path string) []byte {
	t.Helper()
	files := mutate.Extract(image)
	defer files.Close()
	archive := tar.NewReader(files)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("the image has no %s", path)
		}
		if err != nil {
			t.Fatal(err)
		}
		if "/"+strings.TrimPrefix(header.Name, "/") == path {
			if header.FileInfo().Mode()&0o111 == 0 || header.FileInfo().Mode()&0o022 != 0 {
				t.Errorf("%s has mode %v", path, header.FileInfo().Mode())
			}
			content, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			return content
		}
	}
}

// checkStatic: a program that needs no loader and no library, which an image without files does not have.
func checkStatic(t *testing.T, program []byte, machine elf.Machine) {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if file.Machine != machine {
		t.Errorf("it is for %v, not for %v", file.Machine, machine)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it is not static: it has a %v", p.Type)
		}
	}
}
