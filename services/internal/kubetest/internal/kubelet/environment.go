package kubelet

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// environment is an ordered list of variables, each name once.
type environment struct {
	names  []string
	values map[string]string
}

func (e *environment) set(name, value string) {
	if e.values == nil {
		e.values = map[string]string{}
	}
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// reference is $(NAME), and $$ for a dollar sign.
var reference = regexp.MustCompile(`\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)`)

// expand replaces references to variables; those to unknown ones stay as they are.
func (e *environment) expand(s string) string {
	return reference.ReplaceAllStringFunc(s, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := e.values[found[2:len(found)-1]]; ok {
			return value
		}
		return found
	})
}

// describeContainer is all that decides what the container runs, and the folder to
// run it in.
func (w *worker) describeContainer(c *containerRun, image Image) (Container, string, error) {
	mounts, err := w.mountsOf(c.spec)
	if err != nil {
		return Container{}, "", err
	}
	env, err := w.environment(c.spec)
	if err != nil {
		return Container{}, "", err
	}
	for _, pair := range append(slices.Clone(image.Env), "PATH="+os.Getenv("PATH"), "HOSTNAME="+w.key.Name, "HOME=/nonexistent") {
		name, value, _ := strings.Cut(pair, "=")
		if _, ok := env.values[name]; !ok {
			env.set(name, value)
		}
	}
	expanded := func(list []string) []string {
		out := make([]string, 0, len(list))
		for _, s := range list {
			out = append(out, env.expand(s))
		}
		return out
	}
	rewrite := newRewriter(mounts, w.podIP, w.loopback)
	var pairs []string
	for _, name := range env.names {
		pairs = append(pairs, name+"="+rewrite.text(env.values[name]))
	}
	dir := filepath.Join(w.dir, "work", c.spec.Name)
	if at := rewrite.text(c.spec.WorkingDir); at != c.spec.WorkingDir {
		dir = at
	}
	return Container{
		Namespace: w.key.Namespace, Pod: w.key.Name, UID: string(w.uid), Name: c.spec.Name,
		Command: rewrite.texts(expanded(c.spec.Command)), Args: rewrite.texts(expanded(c.spec.Args)),
		Env: pairs, PodIP: w.podIP, Loopback: w.loopback, Mounts: mounts, Restarts: c.attempts,
	}, dir, nil
}

// environment is what the Pod says of the container's environment.
func (w *worker) environment(spec *corev1.Container) (*environment, error) {
	env := &environment{}
	for _, from := range spec.EnvFrom {
		var data map[string]string
		var err error
		switch {
		case from.ConfigMapRef != nil:
			data, err = w.configMap(from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			data, err = w.secret(from.SecretRef.Name, from.SecretRef.Optional)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errConfig, err)
		}
		for _, key := range sortedKeys(data) {
			env.set(from.Prefix+key, data[key])
		}
	}
	for _, v := range spec.Env {
		value, present, err := w.value(v, env)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errConfig, err)
		}
		if present {
			env.set(v.Name, value)
		}
	}
	return env, nil
}

// value is one variable's; one that comes from something optional may be absent.
func (w *worker) value(v corev1.EnvVar, env *environment) (value string, present bool, err error) {
	from := v.ValueFrom
	switch {
	case from == nil:
		return env.expand(v.Value), true, nil
	case from.FieldRef != nil:
		value, err = w.field(from.FieldRef.FieldPath)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		data, err := w.configMap(from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Optional)
		return keyOf(data, from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Optional, err)
	case from.SecretKeyRef != nil:
		data, err := w.secret(from.SecretKeyRef.Name, from.SecretKeyRef.Optional)
		return keyOf(data, from.SecretKeyRef.Key, from.SecretKeyRef.Optional, err)
	}
	return "", false, fmt.Errorf("the source of variable %s isn't known here", v.Name)
}

func keyOf(data map[string]string, key string, optional *bool, err error) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	value, ok := data[key]
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %s", key)
	}
	return value, ok, nil
}

// subscript is metadata.labels['x'] or metadata.annotations['x'].
var subscript = regexp.MustCompile(`^metadata\.(labels|annotations)\['(.*)'\]$`)

// field is a field of the Pod, by the paths that the downward API has.
func (w *worker) field(path string) (string, error) {
	if found := subscript.FindStringSubmatch(path); found != nil {
		if found[1] == "labels" {
			return w.pod.Labels[found[2]], nil
		}
		return w.pod.Annotations[found[2]], nil
	}
	switch path {
	case "metadata.name":
		return w.pod.Name, nil
	case "metadata.namespace":
		return w.pod.Namespace, nil
	case "metadata.uid":
		return string(w.pod.UID), nil
	case "metadata.labels":
		return pairsOf(w.pod.Labels), nil
	case "metadata.annotations":
		return pairsOf(w.pod.Annotations), nil
	case "spec.nodeName":
		return w.nodeName, nil
	case "spec.serviceAccountName":
		return w.pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return w.podIP, nil
	case "status.hostIP", "status.hostIPs":
		return w.k.HostIP(), nil
	}
	return "", fmt.Errorf("field %s isn't known here", path)
}

func pairsOf(m map[string]string) string {
	var out strings.Builder
	for _, key := range sortedKeys(m) {
		fmt.Fprintf(&out, "%s=%q\n", key, m[key])
	}
	return out.String()
}

func (w *worker) configMap(name string, optional *bool) (map[string]string, error) {
	found, err := w.k.client.CoreV1().ConfigMaps(w.key.Namespace).Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, absent(err, optional)
	}
	data := map[string]string{}
	for key, value := range found.BinaryData {
		data[key] = string(value)
	}
	maps.Copy(data, found.Data)
	return data, nil
}

func (w *worker) secret(name string, optional *bool) (map[string]string, error) {
	found, err := w.k.client.CoreV1().Secrets(w.key.Namespace).Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, absent(err, optional)
	}
	data := map[string]string{}
	for key, value := range found.Data {
		data[key] = string(value)
	}
	return data, nil
}

// absent is nil for what is optional and doesn't exist.
func absent(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
