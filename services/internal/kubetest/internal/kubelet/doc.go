// Package kubelet is a node for tests: a kubelet, a scheduler and a provisioner of
// volumes in one, against a real API server. It runs a Pod's containers as processes
// of this machine, and what it reports of them is what those processes did: ready
// because a probe was answered, failed because one exited, restarted because one died.
//
// # What is as in a cluster
//
//   - Scheduling: Pods are bound by the binding subresource to a node that isn't
//     cordoned, that their nodeSelector and tolerations allow, and that has room for
//     their requests; else PodScheduled is False with reason Unschedulable, and an Event
//     FailedScheduling says why.
//   - Order: init containers one after the other, native sidecars until their startup
//     probe succeeds, then the containers; at the end in reverse.
//   - Probes (HTTP, TCP, exec; startup, readiness, liveness), restart policies with
//     counts, last states and back-off, termination with SIGTERM, grace and SIGKILL.
//   - Volumes: emptyDir, persistent claims, configMap, secret, downwardAPI, projected,
//     hostPath. A projected service-account token comes from the API server's
//     TokenRequest, bound to the Pod, and is renewed.
//   - Environment: values, fieldRef, configMap and secret references, $(NAME).
//   - Events of type Warning, under the reasons that a kubelet uses. Of type Normal there
//     are none.
//
// # What is not
//
// There is no isolation: processes share this machine's files, user and network, and
// resource limits are not enforced ([Kubelet.OOM] does what the kernel would). Security
// contexts, lifecycle hooks, ephemeral containers, exec, logs by API, Services and network
// policies are not there. Two things stand in for the file system and the network
// namespace that a container would have; both are replacements in a container's
// command, arguments, working directory, and the values of its environment:
//
//   - a path below a volume's mountPath becomes the path of the real folder, and the
//     terminationMessagePath that of a file;
//   - 0.0.0.0 becomes the Pod's address, 127.0.0.1 and localhost a second address that
//     only this Pod has, so that each Pod has a loopback of its own. All are of 127/8,
//     in a block that no other process on this machine uses.
//
// A program that has a path or an address of its own built in must be told by its
// environment; [Image.Env] is the place for that. What a test serves to Pods listens at
// [Kubelet.HostIP].
//
// # Time
//
// Nothing waits that needn't: a probe is tried every few milliseconds until it first
// succeeds, then at a tenth of its period, and a first restart happens at once.
package kubelet
