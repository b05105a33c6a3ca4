// Package reload proves what the proxy promises of a reload: under load, through folders swapped as the kubelet
// does it and files saved as editors do it, no call is lost, each is decided by a policy that was in force while
// it was under way, and whoever is shown something else is told once. All tests drive the real binary over HTTP
// and look at both ends. What takes long stands behind the build tag `long`, which `make test-all` sets.
package reload
