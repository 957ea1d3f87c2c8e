package kube_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// TestExpiredPodToken: a Pod's projected token that is over proves nothing, at the first
// redemption and at each renewal, though the API server signed it and the Pod still runs.
func TestExpiredPodToken(t *testing.T) {
	t.Parallel()
	in := start(t)
	in.shell("timed", 0)
	s := in.CreateOf("alice", api.CreateSession{Runtime: "timed"})
	pod := in.pod(s.ID)
	signed := in.bindOf(s.ID, pod)
	token := in.projected(pod)
	for name, c := range map[string]struct {
		token  string
		status int
		code   string
	}{
		"while it is good": {in.cluster.TokenUntil(t, token, time.Now().Add(time.Minute)), http.StatusOK, ""},
		"over":             {in.cluster.TokenUntil(t, token, time.Now().Add(-time.Minute)), http.StatusUnauthorized, "unauthenticated"},
		"not good yet":     {in.cluster.TokenUntil(t, token, time.Now().Add(time.Hour)), http.StatusUnauthorized, "unauthenticated"},
	} {
		for _, path := range []string{sandboxapi.PathRedeem, sandboxapi.PathRenew} {
			if status, code := in.presents(path, c.token, signed, ""); status != c.status || code != c.code {
				t.Errorf("%s: %s answers %d %s, want %d %s", name, path, status, code, c.status, c.code)
			}
		}
	}
	in.end(s.ID)
	in.remove("timed")
	in.nothingLeft()
}

// TestBindIsRedeemedByItsProcess: whoever reads the Pod's token and its bind redeems
// nothing with them on a connection of their own: what proves the process stands in its
// memory alone.
func TestBindIsRedeemedByItsProcess(t *testing.T) {
	t.Parallel()
	in := start(t)
	in.shell("sealed", 0)
	s := in.CreateOf("alice", api.CreateSession{Runtime: "sealed"})
	pod := in.pod(s.ID)
	token := in.projected(pod)
	sandboxd, err := sandboxapi.NewClient("http://"+pod.Status.PodIP+":7778", "", 0)
	in.must(err)
	defer sandboxd.Close()
	health, err := sandboxd.Health(t.Context())
	in.must(err)
	named := bind.Bind{
		Tenant: harness.Tenant, Session: s.ID, Generation: 1, PodUID: string(pod.UID), Agents: in.agentsURL, Process: health.Process,
	}
	theirs, err := bind.Sign(in.key(), named, time.Now().Add(time.Minute))
	in.must(err)
	named.Process = bind.ProcessOf("ours")
	ours, err := bind.Sign(in.key(), named, time.Now().Add(time.Minute))
	in.must(err)
	for name, c := range map[string]struct {
		signed, secret string
		status         int
		code           string
	}{
		"without a secret":      {theirs, "", http.StatusForbidden, "bind-refused"},
		"with what it is named": {theirs, health.Process, http.StatusForbidden, "bind-refused"},
		"with another's":        {theirs, "ours", http.StatusForbidden, "bind-refused"},
		"with its own":          {ours, "ours", http.StatusOK, ""},
	} {
		for _, path := range []string{sandboxapi.PathRedeem, sandboxapi.PathRenew} {
			for range 2 {
				if status, code := in.presents(path, token, c.signed, c.secret); status != c.status || code != c.code {
					t.Errorf("%s: %s answers %d %s, want %d %s", name, path, status, code, c.status, c.code)
				}
			}
		}
	}
	in.end(s.ID)
	in.remove("sealed")
	in.nothingLeft()
}

// projected is the token that the kubelet projects into sandboxd's container.
func (in *installation) projected(pod *corev1.Pod) string {
	in.t.Helper()
	seconds := int64(600)
	got, err := in.kube.CoreV1().ServiceAccounts(in.ns).CreateToken(in.t.Context(), pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{"holdfast"}, ExpirationSeconds: &seconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	in.must(err)
	return got.Status.Token
}

// bindOf is the bind that gave a session's first generation its Pod: whoever has the key
// signs the same.
func (in *installation) bindOf(id string, pod *corev1.Pod) string {
	in.t.Helper()
	signed, err := bind.Sign(in.key(), bind.Bind{
		Tenant: harness.Tenant, Session: id, Generation: 1, PodUID: string(pod.UID), Agents: in.agentsURL,
	}, time.Now().Add(time.Minute))
	in.must(err)
	return signed
}

// presents does what a Pod's sandboxd does, on a connection of its own, and gives the answer
// and the problem's code.
func (in *installation) presents(path, token, signed, secret string) (status int, code string) {
	in.t.Helper()
	body, err := json.Marshal(sandboxapi.BindRequest{Bind: signed, Secret: secret})
	in.must(err)
	req, err := http.NewRequestWithContext(in.t.Context(), http.MethodPost, in.agentsURL+path, bytes.NewReader(body))
	in.must(err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	in.must(err)
	var problem api.Problem
	err = json.NewDecoder(resp.Body).Decode(&problem)
	in.must(errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, string(problem.Code)
}
