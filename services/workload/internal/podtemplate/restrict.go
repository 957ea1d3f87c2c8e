package podtemplate

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// runAs is the restricted context of a container of ours.
func runAs(uid int64) *corev1.SecurityContext {
	c := &corev1.SecurityContext{RunAsUser: &uid, RunAsGroup: &uid}
	return restricted(c)
}

// restricted fills in what the context leaves out; what it says stays, and is judged
// afterwards.
func restricted(c *corev1.SecurityContext) *corev1.SecurityContext {
	if c == nil {
		c = &corev1.SecurityContext{}
	}
	yes, no := true, false
	unset(&c.AllowPrivilegeEscalation, &no)
	unset(&c.RunAsNonRoot, &yes)
	unset(&c.ReadOnlyRootFilesystem, &yes)
	unset(&c.SeccompProfile, &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault})
	unset(&c.Capabilities, &corev1.Capabilities{})
	if len(c.Capabilities.Drop) == 0 {
		c.Capabilities.Drop = []corev1.Capability{"ALL"}
	}
	return c
}

func unset[T any](to **T, value *T) {
	if *to == nil {
		*to = value
	}
}

// restrict gives the Pod and each of its containers the restricted context, and refuses
// what asks for more, by Kubernetes' own checks of the level "restricted". That includes
// the containers of ours.
func restrict(pod *corev1.PodSpec, wrong *refusals) {
	if pod.SecurityContext == nil {
		pod.SecurityContext = &corev1.PodSecurityContext{}
	}
	c := pod.SecurityContext
	yes, uid, group := true, int64(agentUID), int64(agentUID)
	onMismatch := corev1.FSGroupChangeOnRootMismatch
	unset(&c.RunAsNonRoot, &yes)
	unset(&c.RunAsUser, &uid)
	unset(&c.RunAsGroup, &group)
	// The volumes are the group's, by which the sidecar reads its token, too.
	unset(&c.FSGroup, &group)
	unset(&c.FSGroupChangePolicy, &onMismatch)
	unset(&c.SeccompProfile, &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault})
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			containers[i].SecurityContext = restricted(containers[i].SecurityContext)
		}
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, result := range podSecurity.EvaluatePod(level, &metav1.ObjectMeta{}, pod) {
		if !result.Allowed {
			wrong.add(templatePointer+"/spec", "is beyond the restricted Pod Security: %s (%s)", result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
}

// podSecurity is Kubernetes' own judge of Pods.
var podSecurity = func() policy.Evaluator {
	e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(err) // its own checks contradict each other
	}
	return e
}()
