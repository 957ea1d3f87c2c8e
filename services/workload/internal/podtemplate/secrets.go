package podtemplate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// secrets names all that is secret and given to containers, sorted. Without leave each
// place is refused. Secrets that only a kubelet pulls images with aren't given to any.
func secrets(pod corev1.PodSpec, allowed bool, wrong *refusals) []string {
	f := finder{allowed: allowed, wrong: wrong}
	for i, v := range pod.Volumes {
		f.volume(fmt.Sprintf("%s/spec/volumes/%d", templatePointer, i), v.VolumeSource)
	}
	for i, c := range pod.InitContainers {
		f.container(fmt.Sprintf("%s/spec/initContainers/%d", templatePointer, i), c)
	}
	for i, c := range pod.Containers {
		f.container(fmt.Sprintf("%s/spec/containers/%d", templatePointer, i), c)
	}
	slices.Sort(f.found)
	return slices.Compact(f.found)
}

// finder collects what is secret.
type finder struct {
	allowed bool
	wrong   *refusals
	found   []string
}

func (f *finder) secret(at, name string) {
	f.found = append(f.found, name)
	if !f.allowed {
		f.wrong.add(at, "%s is secret, and a sandbox is given none: real keys stay outside. sandbox.allowSecrets: true gives it nevertheless", name)
	}
}

func (f *finder) volume(at string, v corev1.VolumeSource) {
	if v.Secret != nil {
		f.secret(at+"/secret/secretName", v.Secret.SecretName)
	}
	if v.CSI != nil && v.CSI.NodePublishSecretRef != nil {
		f.secret(at+"/csi/nodePublishSecretRef", v.CSI.NodePublishSecretRef.Name)
	}
	if v.Projected == nil {
		return
	}
	for i, s := range v.Projected.Sources {
		at := fmt.Sprintf("%s/projected/sources/%d", at, i)
		switch {
		case s.Secret != nil:
			f.secret(at+"/secret/name", s.Secret.Name)
		case s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == tokenAudience:
			f.wrong.add(at+"/serviceAccountToken/audience", "tokens for %s are sandboxd's alone: the agent would pass for it", tokenAudience)
		case s.ServiceAccountToken != nil:
			f.secret(at+"/serviceAccountToken", "token:"+s.ServiceAccountToken.Audience)
		case s.PodCertificate != nil:
			f.secret(at+"/podCertificate", "certificate:"+s.PodCertificate.SignerName)
		}
	}
}

func (f *finder) container(at string, c corev1.Container) {
	for i, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			f.secret(fmt.Sprintf("%s/env/%d/valueFrom/secretKeyRef", at, i), e.ValueFrom.SecretKeyRef.Name)
		}
	}
	for i, e := range c.EnvFrom {
		if e.SecretRef != nil {
			f.secret(fmt.Sprintf("%s/envFrom/%d/secretRef", at, i), e.SecretRef.Name)
		}
	}
}
