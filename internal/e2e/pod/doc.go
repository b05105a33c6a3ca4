// Package pod proves deploy/ and docs/kubernetes.md on a pod that is simulated: a network namespace of its own with
// containers in it, each process 1 of a process namespace, with the folders, the user and the read-only root that the
// manifests give it. The test plays the kubelet, which starts containers in the order of native sidecars, probes by the
// pod's address, swaps ConfigMaps and ends the pod, and it plays the clients, who come from another address.
//
// All of that happens in namespaces which the test makes for itself, so that nothing of the machine is touched and
// nothing stays behind. Where the kernel forbids them the tests fail and say so. The arguments, probes, hooks and times
// of the sidecar are read from deploy/kustomize; tests in a hurry shorten the times. All of them stand behind the build
// tag `long`, which `make test-all` sets.
//
// What is not simulated: the container runtime's system call filter, cgroups, and an image without libraries.
package pod
