package kubelet

import (
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultTokenLife is a projected token's, in seconds, where the Pod names none.
const defaultTokenLife = 3600

// token is a projected service-account token that has to be renewed.
type token struct {
	dir   string
	spec  *corev1.ServiceAccountTokenProjection
	renew time.Time
}

// addToken asks the API server for a token that is bound to this Pod, and keeps in
// mind to renew it.
func (w *worker) addToken(files map[string]string, dir string, spec *corev1.ServiceAccountTokenProjection) error {
	t := token{dir: dir, spec: spec}
	text, err := w.requestToken(&t)
	if err != nil {
		return err
	}
	files[spec.Path] = text
	w.tokens = append(w.tokens, t)
	return nil
}

func (w *worker) requestToken(t *token) (string, error) {
	life := int64(defaultTokenLife)
	if t.spec.ExpirationSeconds != nil {
		life = *t.spec.ExpirationSeconds
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &life,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: w.key.Name, UID: w.uid,
		},
	}}
	if t.spec.Audience != "" {
		request.Spec.Audiences = []string{t.spec.Audience}
	}
	account := w.pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	got, err := w.k.client.CoreV1().ServiceAccounts(w.key.Namespace).CreateToken(w.ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	// A kubelet renews at four fifths of a token's life.
	t.renew = time.Now().Add(time.Until(got.Status.ExpirationTimestamp.Time) * 4 / 5)
	return got.Status.Token, nil
}

// renewTokens writes those tokens anew whose time has come.
func (w *worker) renewTokens() {
	for i := range w.tokens {
		t := &w.tokens[i]
		if time.Now().After(t.renew) {
			text, err := w.requestToken(t)
			if err == nil {
				err = writeFiles(t.dir, map[string]string{t.spec.Path: text})
			}
			if err != nil {
				w.event("FailedMount", "renew the token "+filepath.Base(t.spec.Path)+": "+err.Error())
				t.renew = time.Now().Add(time.Second)
			}
		}
		w.wakeAt(t.renew)
	}
}
