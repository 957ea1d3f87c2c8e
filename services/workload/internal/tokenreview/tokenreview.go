// Package tokenreview has Kubernetes say which Pod a token was given to. It is how the
// sandboxd of a Pod proves itself when it redeems its bind: by the projected
// service-account token of its own container, which the kubelet keeps fresh, and which
// is good for nothing but the audience [Audience].
//
// The service needs one right for it, cluster-wide: create tokenreviews. It reads no
// Secret and no Pod.
package tokenreview

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/holdfast-io/holdfast/services/workload/internal/app"
)

// Audience is that of the tokens which are projected into sandboxd's container. The API
// server refuses such a token for itself, and one for itself is refused here.
const Audience = "holdfast"

const (
	// podUID is where the API server puts the UID of the Pod that a token is bound to; see
	// k8s.io/apiserver, pkg/authentication/serviceaccount.
	podUID = "authentication.kubernetes.io/pod-uid"
	// serviceAccount begins the names of service accounts: nobody else has a Pod.
	serviceAccount = "system:serviceaccount:"
)

// Reviewer implements app.Reviewer. It is safe for concurrent use.
type Reviewer struct{ reviews client.TokenReviewInterface }

var _ app.Reviewer = (*Reviewer)(nil)

// New makes a Reviewer by a client that may create tokenreviews; a Kubernetes clientset's
// AuthenticationV1 is one.
func New(c client.TokenReviewsGetter) *Reviewer { return &Reviewer{reviews: c.TokenReviews()} }

// Review implements app.Reviewer. The token is in no error.
func (r *Reviewer) Review(ctx context.Context, token string) (string, error) {
	review, err := r.reviews.Create(ctx, &authentication.TokenReview{
		Spec: authentication.TokenReviewSpec{Token: token, Audiences: []string{Audience}},
	}, meta.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("review a token: %w", err)
	}
	status := review.Status
	switch {
	case !status.Authenticated:
		return "", fmt.Errorf("%w: %s", app.ErrUnproven, status.Error)
	case !slices.Contains(status.Audiences, Audience): // also of a server that knows no audiences
		return "", fmt.Errorf("%w: it is for %q", app.ErrUnproven, status.Audiences)
	case !strings.HasPrefix(status.User.Username, serviceAccount):
		return "", fmt.Errorf("%w: it is %q's", app.ErrUnproven, status.User.Username)
	}
	if uid := status.User.Extra[podUID]; len(uid) == 1 && uid[0] != "" {
		return uid[0], nil
	}
	return "", fmt.Errorf("%w: it is bound to none", app.ErrUnproven)
}
