package kubetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// Namespace makes a namespace for the test, with its service account default. After
// the test it is deleted with all that is in it, and its Pods' end is waited for; after
// a test that failed, what its Pods are like is in the test's log.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	made, err := c.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("kubetest: namespace: %v", err)
	}
	name := made.Name
	t.Cleanup(func() {
		if t.Failed() {
			c.describe(t, name)
		}
		c.remove(t, name)
	})
	c.Eventually(t, "the namespace has its service account and the API server's certificate", func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			_, err = c.client.CoreV1().ConfigMaps(name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		}
		return err == nil, ignoreNotFound(err)
	})
	return name
}

// remove deletes a namespace and waits until nothing of it runs any more. What else is
// in it goes later, because its controller takes seconds for that.
func (c *Cluster) remove(t testing.TB, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	c.kubelet.CutGrace(name)
	if err := c.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("kubetest: delete namespace %s: %v", name, err)
		return
	}
	// The namespace's controller begins after five seconds; a namespace that is ending
	// takes no new Pods, so those that are there can go at once.
	err := c.client.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("kubetest: delete the pods of %s: %v", name, err)
	}
	err = poll(ctx, func(ctx context.Context) (bool, error) {
		pods, err := c.client.CoreV1().Pods(name).List(ctx, metav1.ListOptions{})
		if err != nil || c.kubelet.Running(name) > 0 {
			return false, err
		}
		if len(pods.Items) == 0 {
			return true, nil
		}
		// Nothing runs. A Pod that was bound to a node of the test as that went has nobody
		// to say so; in a cluster the pod garbage collector removes it.
		at := int64(0)
		return false, c.client.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &at}, metav1.ListOptions{})
	})
	if err != nil {
		t.Errorf("kubetest: namespace %s isn't empty (%d Pods still run): %v", name, c.kubelet.Running(name), err)
	}
}

// Objects lists what is in a namespace, as "kind/name", sorted: all kinds that the API
// server has, but Events and what every namespace has by itself.
func (c *Cluster) Objects(t testing.TB, namespace string) []string {
	t.Helper()
	lists, err := c.client.Discovery().ServerPreferredNamespacedResources()
	if err != nil {
		t.Fatalf("kubetest: discovery: %v", err)
	}
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		t.Fatalf("kubetest: %v", err)
	}
	listable := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists)
	var found []string
	for _, list := range listable {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatalf("kubetest: %v", err)
		}
		for _, resource := range list.APIResources {
			if resource.Kind == "Event" {
				continue
			}
			objects, err := client.Resource(version.WithResource(resource.Name)).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("kubetest: list %s: %v", resource.Name, err)
			}
			for _, object := range objects.Items {
				found = append(found, strings.ToLower(resource.Kind)+"/"+object.Name)
			}
		}
	}
	found = slices.DeleteFunc(found, func(s string) bool {
		return s == "serviceaccount/default" || s == "configmap/kube-root-ca.crt"
	})
	slices.Sort(found)
	return found
}

// Eventually waits until is says true, and fails the test if that takes longer than
// what a slow machine needs. An error of is ends the wait.
func (c *Cluster) Eventually(t testing.TB, what string, is func(context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settle)
	defer cancel()
	if err := poll(ctx, is); err != nil {
		t.Fatalf("kubetest: never true: %s: %v", what, err)
	}
}

// poll asks again and again until the answer is yes.
func poll(ctx context.Context, is func(context.Context) (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		yes, err := is(ctx)
		if yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// describe writes into the test's log what the Pods of a namespace are like, what was
// said about them, and the ends of their logs.
func (c *Cluster) describe(t testing.TB, namespace string) {
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Logf("kubetest: pods of %s: %v", namespace, err)
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		t.Logf("pod %s: %s, %s", pod.Name, pod.Status.Phase, pod.Status.PodIP)
		for _, s := range append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...) {
			t.Logf("  %s: ready %v, restarts %d, %s; log: %s", s.Name, s.Ready, s.RestartCount, stateOf(s.State), c.logTail(pod, s.Name))
		}
	}
	events, err := c.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Logf("kubetest: events of %s: %v", namespace, err)
		return
	}
	for _, event := range events.Items {
		t.Logf("event %s %s/%s: %s: %s", event.Type, event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
	}
}

func stateOf(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("%s (%d) %s", s.Terminated.Reason, s.Terminated.ExitCode, s.Terminated.Message)
	case s.Waiting != nil:
		return s.Waiting.Reason + " " + s.Waiting.Message
	}
	return "unknown"
}

func (c *Cluster) logTail(pod *corev1.Pod, container string) string {
	const size = 2000
	text, err := c.kubelet.Log(pod.UID, container)
	if err != nil {
		return "none"
	}
	return text[max(0, len(text)-size):]
}
