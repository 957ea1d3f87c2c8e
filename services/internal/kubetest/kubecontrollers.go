package kubetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopTimeout is how long kube-controllers may take to end by itself.
const stopTimeout = 10 * time.Second

// startKubeControllers starts Kubernetes' own controllers.
func (c *Cluster) startKubeControllers(assets, kubeconfig, dir string) error {
	path := filepath.Join(dir, "kube-controllers.log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the program has its own
	cmd := exec.Command(filepath.Join(assets, "kube-controllers"), "--kubeconfig", kubeconfig)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("kube-controllers: %w", err)
	}
	exited := make(chan struct{})
	var ending error // once it has exited
	go func() { defer close(exited); ending = cmd.Wait() }()
	c.stops = append(c.stops, func() error {
		select {
		case <-exited:
			text, _ := os.ReadFile(path)
			return errors.Join(fmt.Errorf("kube-controllers ended before the tests: %w", ending), errors.New(string(text)))
		default:
		}
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be ending
		select {
		case <-exited:
		case <-time.After(stopTimeout):
			_ = cmd.Process.Kill()
			<-exited
		}
		return nil
	})
	return nil
}
