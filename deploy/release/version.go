package main

import (
	"regexp"
	"strings"
)

// version is one version in the spellings of those who sort by it.
type version struct {
	tag    string // as git describe prints it, and as the binary says
	number string // "1.2.3"
	kind   string // "alpha", "beta", "rc"; "dev" where the commit has no tag; "" for a release
	count  string // which alpha, beta or rc it is; the commit of a dev
}

var releaseTag = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.(\d+))?$`)

// newVersion reads a tag. Whatever is no release's sorts before all releases.
func newVersion(tag, commit string) version {
	if m := releaseTag.FindStringSubmatch(tag); m != nil {
		return version{tag: tag, number: m[1], kind: m[2], count: m[3]}
	}
	return version{tag: tag, number: "0.0.0", kind: "dev", count: "g" + commit[:12]}
}

// prerelease is what semver, npm, deb and rpm have behind the number.
func (v version) prerelease() string {
	if v.kind == "" {
		return ""
	}
	return v.kind + "." + v.count
}

func (v version) semver() string {
	return strings.TrimSuffix(v.number+"-"+v.prerelease(), "-")
}

// python is the version as PEP 440 has it.
func (v version) python() string {
	switch v.kind {
	case "":
		return v.number
	case "dev":
		return v.number + ".dev0+" + v.count
	}
	return v.number + map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[v.kind] + v.count
}

// alpine is what apk has behind the number. It knows no commits.
func (v version) alpine() string {
	if v.kind == "dev" {
		return "alpha0"
	}
	return v.kind + v.count
}
