// Command release builds what a release of fsm-proxy is made of: archives, deb, rpm and apk packages, npm packages,
// Python wheels, a Homebrew formula, an SBOM for each binary, and the checksums of them all. It is a module of its own, so
// that what packages are written with is none of fsm-proxy's. The same commit gives the same bytes.
package main
