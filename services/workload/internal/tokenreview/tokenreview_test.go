package tokenreview_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/services/workload/internal/app"
	"github.com/holdfast-io/holdfast/services/workload/internal/tokenreview"
)

const (
	secret = "header.claims.signature"
	pod    = "4f6b2c1e-0a55-4b7e-9d3f-0d1f0a6c7e11"
)

// answering is a Reviewer at an API server that answers every review with a status, or
// refuses it. What a real one answers is tested against a real one; here are the answers
// that it gives only where somebody configured it oddly.
func answering(t *testing.T, code int, status authentication.TokenReviewStatus) *tokenreview.Reviewer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked authentication.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Spec.Token != secret ||
			!slices.Equal(asked.Spec.Audiences, []string{tokenreview.Audience}) {
			t.Errorf("asked %+v, %v", asked.Spec, err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		var body any = meta.Status{
			TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: meta.StatusFailure, Code: int32(code), Reason: meta.StatusReasonForbidden,
		}
		if code == http.StatusCreated {
			body = authentication.TokenReview{TypeMeta: meta.TypeMeta{Kind: "TokenReview", APIVersion: "authentication.k8s.io/v1"}, Status: status}
		}
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	c, err := client.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return tokenreview.New(c)
}

func TestReview(t *testing.T) {
	t.Parallel()
	good := func(change func(*authentication.TokenReviewStatus)) authentication.TokenReviewStatus {
		s := authentication.TokenReviewStatus{
			Authenticated: true, Audiences: []string{tokenreview.Audience},
			User: authentication.UserInfo{
				Username: "system:serviceaccount:tenant:sandbox",
				Extra:    map[string]authentication.ExtraValue{"authentication.kubernetes.io/pod-uid": {pod}},
			},
		}
		if change != nil {
			change(&s)
		}
		return s
	}
	for name, test := range map[string]struct {
		status   authentication.TokenReviewStatus
		code     int
		unproven bool
		ok       bool
	}{
		"of a Pod":          {status: good(nil), ok: true},
		"not authenticated": {status: authentication.TokenReviewStatus{Error: "invalid bearer token"}, unproven: true},
		"by a server that knows no audiences": {status: good(func(s *authentication.TokenReviewStatus) {
			s.Audiences = nil
		}), unproven: true},
		"for another audience": {status: good(func(s *authentication.TokenReviewStatus) {
			s.Audiences = []string{"https://kubernetes.default.svc"}
		}), unproven: true},
		"of a person": {status: good(func(s *authentication.TokenReviewStatus) { s.User.Username = "alice" }), unproven: true},
		"of no Pod":   {status: good(func(s *authentication.TokenReviewStatus) { s.User.Extra = nil }), unproven: true},
		"of two": {status: good(func(s *authentication.TokenReviewStatus) {
			s.User.Extra["authentication.kubernetes.io/pod-uid"] = []string{pod, "another"}
		}), unproven: true},
		"of the empty one": {status: good(func(s *authentication.TokenReviewStatus) {
			s.User.Extra["authentication.kubernetes.io/pod-uid"] = []string{""}
		}), unproven: true},
		// Whether the token is good isn't known then, so it is no refusal.
		"the service may not ask": {code: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.code == 0 {
				test.code = http.StatusCreated
			}
			uid, err := answering(t, test.code, test.status).Review(t.Context(), secret)
			if (err == nil) != test.ok || errors.Is(err, app.ErrUnproven) != test.unproven {
				t.Fatalf("%q, %v", uid, err)
			}
			if test.ok && uid != pod {
				t.Errorf("it is %q's", uid)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the token is in the error: %v", err)
			}
		})
	}
}
