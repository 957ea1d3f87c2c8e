//go:build node

package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bounded is the context of a test's waits.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls until holds says nothing against it.
func eventually(ctx context.Context, t *testing.T, what string, holds func() error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		last = holds()
		return last == nil, nil
	}); err != nil {
		t.Fatalf("%s: %v\n%s", what, errors.Join(last, err), cluster.Describe(context.WithoutCancel(ctx)))
	}
}

// TestPod shows that a container runs, resolves a Service's name and reaches it.
func TestPod(t *testing.T) {
	ctx := bounded(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "shell", Image: shellImage, ImagePullPolicy: corev1.PullNever,
				Command: []string{"sh", "-ec", "nc -w 5 kubernetes.default 443 </dev/null"},
			}},
		},
	}
	if err := cluster.Client.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the Pod ends well", func() error {
		if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("it is %s: %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
	if err := cluster.Client.Delete(ctx, pod); err != nil {
		t.Fatal(err)
	}
}
