package chart_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/services/gateway"
)

// The gateway is told what browsers call it, in a form that it takes: what is given, else
// the Ingress' host.
func TestGatewayIsToldItsOrigins(t *testing.T) {
	t.Parallel()
	const host = "ingress.enabled=true,ingress.host=holdfast.example.com"
	for set, want := range map[string]string{
		"":                              "",
		host:                            "http://holdfast.example.com",
		host + ",ingress.tlsSecret=tls": "https://holdfast.example.com",
		host + ",gateway.origins[0]=https://console.example.com":                              "https://console.example.com",
		"ingress.host=holdfast.example.com":                                                   "",
		"gateway.origins[0]=https://a.example.com:8443,gateway.origins[1]=http://[::2]:31070": "https://a.example.com:8443,http://[::2]:31070",
	} {
		got := originsAmong(t, "--set", set)
		if got != want {
			t.Errorf("--set %s: %q, want %q", set, got, want)
		}
		if got == "" {
			continue
		}
		if err := gateway.CheckOrigins(strings.Split(got, ",")); err != nil {
			t.Errorf("--set %s: %v", set, err)
		}
	}
}

// originsAmong is what the one gateway of a rendering is told, and nobody else.
func originsAmong(t *testing.T, args ...string) string {
	t.Helper()
	told := ""
	for _, o := range render(t, args...) {
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, e := range c.Env {
				if e.Name != "HOLDFAST_ORIGINS" {
					continue
				}
				if c.Name != "gateway" || e.Value == "" {
					t.Errorf("%s is told %q", d.Name, e.Value)
				}
				told = e.Value
			}
		}
	}
	return told
}

// A browser stays with the gateway that knows its login for as long as that is good.
func TestBrowsersStayWithAGateway(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]corev1.ServiceAffinity{
		"": corev1.ServiceAffinityClientIP, "gateway.service.sessionAffinity=None": corev1.ServiceAffinityNone,
	} {
		for _, o := range render(t, "--set", set) {
			s, ok := o.(*corev1.Service)
			if !ok || s.Name != release {
				continue
			}
			if s.Spec.SessionAffinity != want {
				t.Errorf("--set %s: affinity %s, want %s", set, s.Spec.SessionAffinity, want)
			}
			if c := s.Spec.SessionAffinityConfig; want == corev1.ServiceAffinityClientIP && (c == nil || *c.ClientIP.TimeoutSeconds != 12*60*60) {
				t.Errorf("--set %s: it ends before the login does: %+v", set, c)
			}
		}
	}
}
