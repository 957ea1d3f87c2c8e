package kubelet

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (w *worker) volumesDir() string { return filepath.Join(w.dir, "volumes") }

// makeVolumes makes the Pod's volumes. It fails, to be tried again, while something
// that one of them needs doesn't exist.
func (w *worker) makeVolumes() error {
	if err := os.MkdirAll(w.volumesDir(), 0o755); err != nil {
		return err
	}
	mounts := map[string]string{}
	w.tokens = nil
	for i := range w.pod.Spec.Volumes {
		volume := &w.pod.Spec.Volumes[i]
		dir, err := w.makeVolume(volume)
		if err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q: %w", volume.Name, err)
		}
		mounts[volume.Name] = dir
	}
	w.mounts = mounts
	return nil
}

func (w *worker) makeVolume(volume *corev1.Volume) (string, error) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return w.claimDir(volume.PersistentVolumeClaim.ClaimName)
	case volume.Ephemeral != nil:
		return w.claimDir(w.key.Name + "-" + volume.Name)
	case volume.HostPath != nil:
		return volume.HostPath.Path, nil
	}
	dir := filepath.Join(w.volumesDir(), volume.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	files := map[string]string{}
	var err error
	switch {
	case volume.EmptyDir != nil:
		return dir, os.Chmod(dir, 0o777|os.ModeSticky)
	case volume.ConfigMap != nil:
		err = w.addConfigMap(files, volume.ConfigMap.Name, volume.ConfigMap.Items, volume.ConfigMap.Optional)
	case volume.Secret != nil:
		err = w.addSecret(files, volume.Secret.SecretName, volume.Secret.Items, volume.Secret.Optional)
	case volume.DownwardAPI != nil:
		err = w.addFields(files, volume.DownwardAPI.Items)
	case volume.Projected != nil:
		for i := range volume.Projected.Sources {
			if err := w.addProjection(files, dir, &volume.Projected.Sources[i]); err != nil {
				return "", err
			}
		}
	default:
		err = errors.New("this kind of volume isn't known here")
	}
	if err != nil {
		return "", err
	}
	return dir, writeFiles(dir, files)
}

func (w *worker) addProjection(files map[string]string, dir string, source *corev1.VolumeProjection) error {
	switch {
	case source.ServiceAccountToken != nil:
		return w.addToken(files, dir, source.ServiceAccountToken)
	case source.ConfigMap != nil:
		return w.addConfigMap(files, source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional)
	case source.Secret != nil:
		return w.addSecret(files, source.Secret.Name, source.Secret.Items, source.Secret.Optional)
	case source.DownwardAPI != nil:
		return w.addFields(files, source.DownwardAPI.Items)
	}
	return errors.New("this kind of projection isn't known here")
}

func (w *worker) addConfigMap(files map[string]string, name string, items []corev1.KeyToPath, optional *bool) error {
	data, err := w.configMap(name, optional)
	if err != nil {
		return err
	}
	return addItems(files, data, items, optional)
}

func (w *worker) addSecret(files map[string]string, name string, items []corev1.KeyToPath, optional *bool) error {
	data, err := w.secret(name, optional)
	if err != nil {
		return err
	}
	return addItems(files, data, items, optional)
}

// addItems adds those keys that are listed, or all of them.
func addItems(files, data map[string]string, items []corev1.KeyToPath, optional *bool) error {
	if len(items) == 0 {
		maps.Copy(files, data)
		return nil
	}
	for _, item := range items {
		value, present, err := keyOf(data, item.Key, optional, nil)
		if err != nil {
			return err
		}
		if present {
			files[item.Path] = value
		}
	}
	return nil
}

func (w *worker) addFields(files map[string]string, items []corev1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("only fields are known here, for %s", item.Path)
		}
		value, err := w.field(item.FieldRef.FieldPath)
		if err != nil {
			return err
		}
		files[item.Path] = value
	}
	return nil
}

// writeFiles writes files below dir, each at once: a reader never sees half of one.
func writeFiles(dir string, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	return nil
}

// claimDir is the folder behind a persistent volume claim.
func (w *worker) claimDir(name string) (string, error) {
	claim, err := w.k.client.CoreV1().PersistentVolumeClaims(w.key.Namespace).Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return "", fmt.Errorf("persistentvolumeclaim %q is not bound", name)
	}
	volume, err := w.k.client.CoreV1().PersistentVolumes().Get(w.ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if volume.Spec.HostPath == nil {
		return "", fmt.Errorf("persistentvolume %q is no folder of the host", volume.Name)
	}
	return volume.Spec.HostPath.Path, nil
}

// mountsOf are the container's real folders by mountPath.
func (w *worker) mountsOf(spec *corev1.Container) (map[string]string, error) {
	mounts := map[string]string{}
	for _, mount := range spec.VolumeMounts {
		dir := w.mounts[mount.Name]
		sub := mount.SubPath
		if sub != "" && !filepath.IsLocal(sub) {
			return nil, fmt.Errorf("%w: subPath %q leaves its volume", errConfig, sub)
		}
		if sub != "" {
			dir = filepath.Join(dir, sub)
			if _, err := os.Stat(dir); err != nil { // a folder, unless it is a file that exists
				if err := os.MkdirAll(dir, 0o777); err != nil {
					return nil, fmt.Errorf("%w: %w", errConfig, err)
				}
			}
		}
		mounts[strings.TrimRight(mount.MountPath, "/")] = dir
	}
	if path := spec.TerminationMessagePath; path != "" {
		mounts[path] = w.messageFile(spec)
	}
	return mounts, nil
}
