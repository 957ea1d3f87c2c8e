package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// probeEager is how soon a probe is tried again before its first success, at first.
	probeEager = 10 * time.Millisecond
	// probeHaste divides a probe's period: ten seconds would be long in a test.
	probeHaste = 10
)

// probe is one way to look at a container.
type probe struct {
	spec *corev1.Probe
	try  func(ctx context.Context) error
}

// startProbes looks after a container that has just started, until its probes are
// stopped. Without a probe of a kind the answer is yes from the start.
func (w *worker) startProbes(c *containerRun) {
	ctx, stop := context.WithCancel(w.ctx)
	c.stop = stop
	run := c.process
	tell := func(do func()) {
		w.post(func() {
			if c.process == run { // not one that has been replaced
				do()
			}
		})
	}
	startup, readiness, liveness := w.probe(c, c.spec.StartupProbe), w.probe(c, c.spec.ReadinessProbe), w.probe(c, c.spec.LivenessProbe)
	c.started = startup == nil
	c.ready = c.started && readiness == nil
	if startup == nil && readiness == nil && liveness == nil {
		return
	}
	c.probing.Go(func() {
		if startup != nil {
			if err := startup.first(ctx, true); err != nil {
				tell(func() { w.fail(c, "Startup", err) })
				return
			}
			if ctx.Err() != nil {
				return
			}
			tell(func() { c.started, c.ready = true, readiness == nil })
		}
		if liveness != nil {
			c.probing.Go(func() {
				if err := liveness.untilFailed(ctx); err != nil {
					tell(func() { w.fail(c, "Liveness", err) })
				}
			})
		}
		if readiness != nil {
			readiness.follow(ctx, func(err error) {
				tell(func() {
					c.ready = err == nil
					if err != nil {
						w.event("Unhealthy", fmt.Sprintf("Readiness probe failed: %v", err))
					}
				})
			})
		}
	})
}

// first waits for the probe's first success. With bounded it fails once the probe
// would have, had it been tried at its own period.
func (p *probe) first(ctx context.Context, bounded bool) error {
	limit := time.Duration(p.spec.InitialDelaySeconds)*time.Second + p.period()*time.Duration(max(p.spec.FailureThreshold, 1))
	began, wait := time.Now(), probeEager
	for {
		err := p.once(ctx)
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // who was told to stop hasn't failed
		}
		if bounded && time.Since(began) > limit {
			return err
		}
		if !pause(ctx, wait) {
			return nil
		}
		// Who takes long isn't kept from its work by being asked.
		wait = min(wait*5/4, p.period()/probeHaste)
	}
}

// follow tells each change of the probe's answer, from the first success on.
func (p *probe) follow(ctx context.Context, tell func(error)) {
	for ctx.Err() == nil {
		_ = p.first(ctx, false)
		if ctx.Err() != nil {
			return
		}
		tell(nil)
		if err := p.untilFailed(ctx); err != nil {
			tell(err)
		}
	}
}

// untilFailed returns after as many failures in a row as the probe has for its
// threshold, or with nil when ctx has ended.
func (p *probe) untilFailed(ctx context.Context) error {
	for failures := int32(0); pause(ctx, p.period()/probeHaste); {
		err := p.once(ctx)
		if err == nil {
			failures = 0
			continue
		}
		if failures++; failures >= max(p.spec.FailureThreshold, 1) && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (p *probe) period() time.Duration {
	return time.Duration(max(p.spec.PeriodSeconds, 1)) * time.Second
}

func (p *probe) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(p.spec.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	return p.try(ctx)
}

// pause waits, and returns false when ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// probe makes a probe of its description; nil without one.
func (w *worker) probe(c *containerRun, spec *corev1.Probe) *probe {
	switch {
	case spec == nil:
		return nil
	case spec.HTTPGet != nil:
		return &probe{spec, func(ctx context.Context) error { return w.get(ctx, c, spec.HTTPGet) }}
	case spec.TCPSocket != nil:
		address := net.JoinHostPort(w.probedHost(spec.TCPSocket.Host), w.port(c, spec.TCPSocket.Port))
		return &probe{spec, func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			return conn.Close()
		}}
	case spec.Exec != nil:
		return &probe{spec, w.execProbe(c, spec.Exec.Command)}
	}
	return &probe{spec, func(context.Context) error { return errors.New("this kind of probe isn't known here") }}
}

// prober follows no redirects out of the Pod and keeps no connection.
var prober = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (w *worker) get(ctx context.Context, c *containerRun, get *corev1.HTTPGetAction) error {
	url := "http://" + net.JoinHostPort(w.probedHost(get.Host), w.port(c, get.Port)) + "/" + trimSlash(get.Path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-probe/1.36")
	for _, h := range get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	resp, err := prober.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", resp.StatusCode)
	}
	return nil
}

func trimSlash(path string) string {
	if path != "" && path[0] == '/' {
		return path[1:]
	}
	return path
}

func (w *worker) probedHost(host string) string {
	switch host {
	case "":
		return w.podIP
	case "127.0.0.1", "localhost":
		return w.loopback
	}
	return host
}

// port finds a port by its name among the container's.
func (w *worker) port(c *containerRun, port intstr.IntOrString) string {
	for _, p := range c.spec.Ports {
		if port.Type == intstr.String && p.Name == port.StrVal {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	return port.String()
}

// execProbe runs a command as the container itself would.
func (w *worker) execProbe(c *containerRun, command []string) func(context.Context) error {
	image, _ := w.k.image(c.spec.Image)
	info, dir, err := w.describeContainer(c, image)
	if err == nil {
		info.Command, info.Args = newRewriter(info.Mounts, w.podIP, w.loopback).texts(command), nil
	}
	return func(ctx context.Context) error {
		if err != nil {
			return err
		}
		argv := info.Command
		if program, ok := image.Programs[argv[0]]; ok {
			argv = append([]string{program}, argv[1:]...)
		}
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env, cmd.Dir = info.Env, dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
}
