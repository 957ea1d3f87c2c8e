package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// firstBackOff is the wait before the second restart; it doubles from there on. The
	// first restart waits for nothing, and a kubelet's would wait 10 s.
	firstBackOff = 100 * time.Millisecond
	maxBackOff   = 5 * time.Second
	// exitCannotStart is the code that container runtimes give for a command that can't
	// be started.
	exitCannotStart = 128
	messageSize     = 2048 // of the log's end in a termination message
	pathMessageSize = 4096 // of what the container wrote itself
)

// errConfig is a container whose environment names what doesn't exist.
var errConfig = errors.New("CreateContainerConfigError")

// containerRun is a container with all its restarts.
type containerRun struct {
	spec          *corev1.Container
	init, sidecar bool

	process  *process // nil unless one runs, or its end wasn't taken in yet
	started  bool     // its startup probe has succeeded
	ready    bool
	oom      bool // the kernel has killed it
	attempts int  // runs so far
	failures int  // in a row, of the same kind: what the back-off counts
	retryAt  time.Time

	waiting    *corev1.ContainerStateWaiting
	terminated *corev1.ContainerStateTerminated
	last       *corev1.ContainerStateTerminated

	stop    context.CancelFunc // of the probes
	probing sync.WaitGroup
}

func newContainerRun(spec *corev1.Container, init bool) *containerRun {
	return &containerRun{
		spec: spec, init: init,
		sidecar: init && spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways,
		waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"},
		stop:    func() {},
	}
}

func (c *containerRun) stopped() bool   { return c.process == nil && c.terminated != nil }
func (c *containerRun) succeeded() bool { return c.stopped() && c.terminated.ExitCode == 0 }

func (c *containerRun) stopProbes() { c.stop() }

// settle takes in that the process has exited.
func (c *containerRun) settle() {
	if c.process == nil || c.process.running() {
		return
	}
	reason := "Completed"
	switch {
	case c.oom:
		reason = "OOMKilled"
	case c.process.code != 0:
		reason = "Error"
	}
	c.terminated = &corev1.ContainerStateTerminated{
		ExitCode: c.process.code, Reason: reason,
		StartedAt: metav1.NewTime(c.process.started), FinishedAt: metav1.NewTime(c.process.finished),
		ContainerID: c.id(),
	}
	c.stopProbes()
	c.process, c.started, c.ready, c.oom = nil, false, false, false
}

// id names this run of the container, as a runtime's id does.
func (c *containerRun) id() string { return fmt.Sprintf("processes://%s-%d", c.spec.Name, c.attempts) }

// keep starts the container if it doesn't run and should.
func (w *worker) keep(c *containerRun) {
	before := c.process
	c.settle()
	if c.process != nil {
		return
	}
	if before != nil {
		w.describe(c)
	}
	if c.terminated != nil && !w.restarts(c) {
		return
	}
	if before != nil {
		w.backOff(c)
	}
	if wait := time.Until(c.retryAt); wait > 0 {
		w.wakeAt(c.retryAt)
		return
	}
	w.start(c)
}

// describe puts what the container left in its terminationMessagePath into the message;
// where that is nothing after a failure, the end of the log if the container asks for it.
func (w *worker) describe(c *containerRun) {
	c.terminated.Message = tail(w.messageFile(c.spec), pathMessageSize)
	if c.terminated.Message == "" && c.terminated.ExitCode != 0 && c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		c.terminated.Message = tail(logFile(w.dir, c.spec.Name), messageSize)
	}
}

// messageFile stands in for a container's terminationMessagePath.
func (w *worker) messageFile(spec *corev1.Container) string {
	return filepath.Join(w.dir, "message-"+spec.Name)
}

// backOff decides when a container that has ended starts again.
func (w *worker) backOff(c *containerRun) {
	// Who ran for a while begins anew, as with a kubelet.
	if c.terminated.FinishedAt.Sub(c.terminated.StartedAt.Time) > 2*maxBackOff {
		c.failures = 0
	}
	c.failures++
	if c.failures == 1 {
		c.retryAt = time.Now()
		return
	}
	wait := min(firstBackOff<<min(c.failures-2, 10), maxBackOff)
	c.retryAt = time.Now().Add(wait)
	c.last, c.terminated = c.terminated, nil
	c.waiting = &corev1.ContainerStateWaiting{
		Reason:  "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", wait, c.spec.Name, w.key.Name),
	}
	w.event("BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s", c.spec.Name, w.key.Name))
}

// start runs the container once more, or says what it waits for.
func (w *worker) start(c *containerRun) {
	image, ok := w.k.image(c.spec.Image)
	if !ok {
		w.pullFailed(c)
		return
	}
	process, err := w.launch(c, image)
	if errors.Is(err, errConfig) {
		w.waitFor(c, "CreateContainerConfigError", err.Error())
		return
	}
	if c.terminated != nil {
		c.last, c.terminated = c.terminated, nil
	}
	c.attempts++
	c.waiting = nil
	if err != nil {
		c.terminated = &corev1.ContainerStateTerminated{
			ExitCode: exitCannotStart, Reason: "StartError", Message: err.Error(), ContainerID: c.id(),
			StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
		}
		w.event("Failed", fmt.Sprintf("Error: failed to start container %q: %v", c.spec.Name, err))
		if w.restarts(c) {
			w.backOff(c)
			w.wakeAt(c.retryAt)
		}
		return
	}
	c.process = process
	w.k.running.Go(func() {
		<-process.exited
		w.post(func() {})
	})
	w.startProbes(c)
}

// pullFailed says that nobody knows the image, with the two reasons that a kubelet
// alternates between.
func (w *worker) pullFailed(c *containerRun) {
	if c.waiting != nil && c.waiting.Reason == "ErrImagePull" {
		w.waitFor(c, "ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q", c.spec.Image))
		return
	}
	message := fmt.Sprintf("failed to pull and unpack image %q: not found", c.spec.Image)
	if c.waiting == nil || c.waiting.Reason != "ImagePullBackOff" {
		w.event("Failed", fmt.Sprintf("Failed to pull image %q: %s", c.spec.Image, message))
		w.waitFor(c, "ErrImagePull", message)
		return
	}
	w.waitFor(c, "ImagePullBackOff", c.waiting.Message)
}

// waitFor leaves the container waiting and tries again soon.
func (w *worker) waitFor(c *containerRun, reason, message string) {
	if c.waiting == nil || c.waiting.Reason != reason {
		if reason == "ImagePullBackOff" {
			w.event("BackOff", message)
		}
		if reason != "ErrImagePull" && reason != "ImagePullBackOff" {
			w.event("Failed", "Error: "+message)
		}
	}
	if c.terminated != nil {
		c.last, c.terminated = c.terminated, nil
	}
	c.waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	c.retryAt = time.Now().Add(again)
	w.wakeAt(c.retryAt)
}

// launch starts the container's process.
func (w *worker) launch(c *containerRun, image Image) (*process, error) {
	info, dir, err := w.describeContainer(c, image)
	if err != nil {
		return nil, err
	}
	argv, err := image.argv(info)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(w.dir+"/logs", 0o755); err != nil {
		return nil, err
	}
	// Each run begins with an empty message.
	if err := os.WriteFile(w.messageFile(c.spec), nil, 0o666); err != nil {
		return nil, err
	}
	mark := fmt.Sprintf("%s/%s/%d", w.uid, c.spec.Name, c.attempts)
	return startProcess(argv, info.Env, dir, logFile(w.dir, c.spec.Name), mark)
}

// fail kills a container whose probe says that it is beyond hope.
func (w *worker) fail(c *containerRun, probe string, cause error) {
	w.event("Unhealthy", fmt.Sprintf("%s probe failed: %v", probe, cause))
	c.process.kill(syscall.SIGKILL)
}
