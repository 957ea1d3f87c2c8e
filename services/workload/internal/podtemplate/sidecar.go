package podtemplate

import (
	"encoding/base64"
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Names and ports in every Pod. All names of ours begin with reserved.
const (
	// SidecarContainer is sandboxd's, a native sidecar.
	SidecarContainer = "holdfast-sandboxd"
	// InstallContainer copies sandboxd for the agent's container.
	InstallContainer = "holdfast-install"
	// AgentContainer is the agent's where no admin's template names another.
	AgentContainer = "agent"
	// WorkspaceVolume may be mounted by an admin's containers too, the others of ours not.
	WorkspaceVolume = "holdfast-workspace"
	// Port is sandboxd's on the Pod's address, RelayPort its own on the Pod's loopback.
	Port      = 7778
	RelayPort = 7777

	reserved    = "holdfast-"
	spoolVolume = "holdfast-spool"
	tokenVolume = "holdfast-token"
	tmpVolume   = "holdfast-tmp"
	binVolume   = "holdfast-bin"

	// ownUID is the user of Holdfast's image, agentUID that of the agent unless a
	// template says another: an image that names none would run as root, and be refused.
	ownUID   = 10001
	agentUID = 1000

	tokenAudience = "holdfast"
	tokenSeconds  = 3600
	binDir        = "/holdfast"
	tmpDir        = "/tmp"
	sandboxd      = "/usr/local/bin/sandboxd" // in Holdfast's image

	spoolBytes = 256 << 20
	tmpBytes   = 1 << 30
)

// sidecar is sandboxd's container. It starts before the agent's, and ends after it,
// so that the last that an agent says is heard.
func sidecar(spec driver.RuntimeSpec, isolation string, o Options) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	health := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: sandboxapi.PathHealth, Port: intstr.FromInt32(Port)}}
	return corev1.Container{
		Name: SidecarContainer, Image: o.Image, ImagePullPolicy: o.PullPolicy,
		Command: []string{sandboxd, "sidecar"}, RestartPolicy: &always,
		Ports: []corev1.ContainerPort{{Name: "sandboxd", ContainerPort: Port, Protocol: corev1.ProtocolTCP}},
		Env:   sidecarEnv(spec, isolation, o),
		// A second is the kubelet's shortest period: it bounds how fast a cold start is seen.
		StartupProbe:   &corev1.Probe{ProbeHandler: health, PeriodSeconds: 1, FailureThreshold: 60},
		ReadinessProbe: &corev1.Probe{ProbeHandler: health, PeriodSeconds: 5, FailureThreshold: 3},
		Resources:      o.sidecarResources(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: spoolVolume, MountPath: sandboxapi.JailSpool},
			{Name: tokenVolume, MountPath: path.Dir(sandboxapi.DefaultTokenFile), ReadOnly: true},
		},
		SecurityContext: runAs(ownUID),
	}
}

// sidecarEnv is all that sandboxd is told; nothing of it is a secret or of a session.
func sidecarEnv(spec driver.RuntimeSpec, isolation string, o Options) []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: sandboxapi.EnvPodUID, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.uid"},
		}},
		{Name: sandboxapi.EnvBindKey, Value: base64.StdEncoding.EncodeToString(o.BindKey)},
		{Name: sandboxapi.EnvAdapter, Value: spec.Adapter},
		{Name: sandboxapi.EnvIsolation, Value: isolation},
		{Name: sandboxapi.EnvSpool, Value: sandboxapi.JailSpool},
		{Name: sandboxapi.EnvTokenFile, Value: sandboxapi.DefaultTokenFile},
	}
	if spec.Port != 0 {
		env = append(env, corev1.EnvVar{Name: sandboxapi.EnvAgentPort, Value: strconv.Itoa(spec.Port)})
	}
	if spec.ReadyPath != "" {
		env = append(env, corev1.EnvVar{Name: sandboxapi.EnvReadyPath, Value: spec.ReadyPath})
	}
	if spec.RunPath != "" {
		env = append(env, corev1.EnvVar{Name: sandboxapi.EnvRunPath, Value: spec.RunPath})
	}
	return env
}

// install puts sandboxd where the agent's container sees it, so that any image can run
// it.
func install(o Options) corev1.Container {
	return corev1.Container{
		Name: InstallContainer, Image: o.Image, ImagePullPolicy: o.PullPolicy,
		Command:         []string{sandboxd, "install", sandboxapi.JailBinary},
		VolumeMounts:    []corev1.VolumeMount{{Name: binVolume, MountPath: binDir}},
		SecurityContext: runAs(ownUID),
		Resources:       o.sidecarResources(),
	}
}

// ownVolumes are the sidecar's, and the agent's but the session's.
func ownVolumes(spec driver.RuntimeSpec, installs bool) []corev1.Volume {
	seconds := int64(tokenSeconds)
	volumes := []corev1.Volume{
		scratch(spoolVolume, spoolBytes),
		{Name: tokenVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience: tokenAudience, ExpirationSeconds: &seconds, Path: path.Base(sandboxapi.DefaultTokenFile),
			}}},
		}}},
		scratch(tmpVolume, tmpBytes),
	}
	if !spec.HasVolume {
		volumes = append(volumes, scratch(WorkspaceVolume, spec.Limits.DiskBytes))
	}
	if installs {
		volumes = append(volumes, scratch(binVolume, 0))
	}
	return volumes
}

// scratch is an emptyDir; bytes bound it, 0 not.
func scratch(name string, bytes int64) corev1.Volume {
	dir := &corev1.EmptyDirVolumeSource{}
	if bytes > 0 {
		dir.SizeLimit = resource.NewQuantity(bytes, resource.BinarySI)
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: dir}}
}
