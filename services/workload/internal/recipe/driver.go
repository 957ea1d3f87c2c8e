package recipe

import (
	"strconv"

	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// ForDriver words a checked spec for a driver; the caller names it.
func ForDriver(s runtime.Spec) driver.RuntimeSpec {
	d := driver.RuntimeSpec{
		Kind: string(s.Kind), Argv: s.Sandbox.Command, Folder: s.Sandbox.HostFolder,
		Adapter: s.Adapter.Protocol, RunPath: s.Adapter.Path,
		WorkspacePath: "/workspace", HasVolume: s.Workspace != nil,
		Pod: &driver.PodSpec{
			Image: s.Sandbox.Image, PodTemplate: s.Sandbox.PodTemplate, AllowSecrets: s.Sandbox.AllowSecrets,
			RuntimeClassName: s.Sandbox.RuntimeClassName, ServiceAccount: s.Sandbox.ServiceAccountName,
			Requests: s.Sandbox.Resources.Requests, Limits: s.Sandbox.Resources.Limits, Grace: s.Timeouts.DrainGrace.D(),
		},
	}
	for _, e := range s.Sandbox.Env {
		d.Env = append(d.Env, e.Name+"="+e.Value)
	}
	if s.Workspace != nil {
		d.WorkspacePath = s.Workspace.Path
		d.Pod.StorageClass, d.Pod.VolumeSize = s.Workspace.StorageClassName, s.Workspace.Size
		d.Limits.DiskBytes, _ = bytes(s.Workspace.Size) // it was read when it was checked
	}
	if len(s.Entrypoints) > 0 {
		d.Port, d.ReadyPath = s.Entrypoints[0].Port, s.Entrypoints[0].Ready
	}
	// They were read before, so errors can't come.
	d.Limits.CPUMillis, _ = millis(s.Sandbox.Resources.Limits["cpu"])
	d.Limits.MemoryBytes, _ = bytes(s.Sandbox.Resources.Limits["memory"])
	d.Limits.Pids, _ = strconv.ParseInt(s.Sandbox.Resources.Limits["pids"], 10, 64)
	return d
}
