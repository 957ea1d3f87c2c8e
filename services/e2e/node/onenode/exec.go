package onenode

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Exec runs a program in a container of a Pod, as its user and with its environment, and
// gives what it wrote to its standard output. The error of one that ran and failed has
// what it wrote beside.
func (n *Node) Exec(ctx context.Context, pod *corev1.Pod, container string, args ...string) (string, error) {
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == container })
	if i < 0 {
		return "", fmt.Errorf("pod %s has no container %s", pod.Name, container)
	}
	id := strings.TrimPrefix(pod.Status.ContainerStatuses[i].ContainerID, "containerd://")
	cmd := exec.CommandContext(ctx, n.part("ctr"), slices.Concat(
		[]string{"--address", n.containerdSocket(), "--namespace", containerNS, "tasks", "exec", "--exec-id", rand.Text(), id}, args)...)
	var out, beside bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &beside
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s in %s: %w: %s", args[0], pod.Name, err, beside.String())
	}
	return out.String(), nil
}
