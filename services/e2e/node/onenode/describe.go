package onenode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Describe says what has become of the Pods that aren't ready, with what they said
// last: for a test that failed.
func (n *Node) Describe(ctx context.Context) string {
	var said strings.Builder
	var pods corev1.PodList
	if err := n.Client.List(ctx, &pods); err != nil {
		return err.Error()
	}
	for _, p := range pods.Items {
		if ready(&p) {
			continue
		}
		fmt.Fprintf(&said, "%s/%s is %s %s\n", p.Namespace, p.Name, p.Status.Phase, p.Status.Reason)
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			fmt.Fprintf(&said, "  %s: ready %v, restarts %d, %s%s\n", c.Name, c.Ready, c.RestartCount, state(c.State), n.lastWords(&p, c.Name))
		}
	}
	var events corev1.EventList
	if err := n.Client.List(ctx, &events); err != nil {
		return said.String() + err.Error()
	}
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning {
			fmt.Fprintf(&said, "%s/%s: %s: %s (%d)\n", e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message, e.Count)
		}
	}
	return said.String()
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue || p.Status.Phase == corev1.PodSucceeded
		}
	}
	return false
}

func state(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return "waiting: " + s.Waiting.Reason + " " + s.Waiting.Message
	case s.Terminated != nil:
		return fmt.Sprintf("ended: %s, exit %d %s", s.Terminated.Reason, s.Terminated.ExitCode, s.Terminated.Message)
	}
	return "running"
}

// lastWords are the ends of a container's logs, of each of its starts.
func (n *Node) lastWords(p *corev1.Pod, container string) string {
	files, err := filepath.Glob(n.path("log", "pods", p.Namespace+"_"+p.Name+"_"+string(p.UID), container, "*.log"))
	if err != nil {
		return ""
	}
	var said strings.Builder
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
		for _, l := range lines[max(0, len(lines)-6):] {
			said.WriteString("\n    " + l)
		}
	}
	return said.String()
}
