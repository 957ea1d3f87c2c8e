package sidecar

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/supervise"
)

const (
	// redeemFor is how long a good bind is presented, again and again, to a gateway that
	// restarts, or is a moment away. Whoever sent it may send it again after that.
	redeemFor = 20 * time.Second
	// The pause before the next try doubles from the first to the last of these.
	firstPause, lastPause = 50 * time.Millisecond, 2 * time.Second
	// answerTimeout bounds one answer.
	answerTimeout = 10 * time.Second
	// maxToken and maxGrant bound what is read, in bytes.
	maxToken = 16 << 10
	maxGrant = 1 << 20
)

// redeemer is the [supervise.Binder] of a Pod: it presents the bind, and the Pod's own
// token, to the gateway that the bind names.
type redeemer struct {
	key       ed25519.PublicKey
	podUID    string
	secret    string // of this process; see [bind.Bind]
	tokenFile string
	log       *slog.Logger

	mu       sync.Mutex
	upstream *supervise.Upstream // of the bind that was redeemed
}

var _ supervise.Binder = (*redeemer)(nil)

// Redeem implements [supervise.Binder].
func (r *redeemer) Redeem(ctx context.Context, signed string) (*sandboxapi.Grant, error) {
	b, upstream, err := r.verify(signed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", supervise.ErrRefused, err)
	}
	ctx, cancel := context.WithTimeout(ctx, redeemFor)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		grant, err := r.present(ctx, upstream, sandboxapi.PathRedeem, signed)
		if err == nil && !isFor(grant, b) {
			err = fmt.Errorf("%w: the grant is for another sandbox", supervise.ErrRefused)
		}
		switch {
		case err == nil:
			r.mu.Lock()
			r.upstream = upstream
			r.mu.Unlock()
			return grant, nil
		case errors.Is(err, supervise.ErrRefused) || !wait(ctx, pause):
			upstream.CloseIdle()
			return nil, err
		}
		r.log.Warn("bind not redeemed yet", "session", b.Session, "err", err)
	}
}

// verify reads a bind that may be trusted, for this Pod, and gives the way to the gateway
// that it names.
func (r *redeemer) verify(signed string) (bind.Bind, *supervise.Upstream, error) {
	b, err := bind.Verify(r.key, signed, time.Now())
	if err != nil {
		return b, nil, err
	}
	if bind.Pod(b.PodUID) != r.podUID {
		return b, nil, errors.New("it is for another Pod")
	}
	if !b.IsBy(r.secret) {
		return b, nil, errors.New("it is for another process of this Pod")
	}
	if err := bind.CheckAgents(b.Agents); err != nil {
		return b, nil, err
	}
	upstream, err := supervise.NewUpstream(b.Agents)
	return b, upstream, err
}

// isFor says whether a grant is what the bind promised.
func isFor(g *sandboxapi.Grant, b bind.Bind) bool {
	return g.Tenant == b.Tenant && g.Session == b.Session && g.Generation == b.Generation && g.PodUID == b.PodUID && g.Token != ""
}

// Renew implements [supervise.Binder].
func (r *redeemer) Renew(ctx context.Context, signed string) (*sandboxapi.Grant, error) {
	return r.present(ctx, r.Upstream(), sandboxapi.PathRenew, signed)
}

// Upstream implements [supervise.Binder].
func (r *redeemer) Upstream() *supervise.Upstream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.upstream
}

// present asks once. An answer that says no for good is [supervise.ErrRefused].
func (r *redeemer) present(ctx context.Context, upstream *supervise.Upstream, path, signed string) (*sandboxapi.Grant, error) {
	token, err := r.token()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(sandboxapi.BindRequest{Bind: signed, Secret: r.secret}) //nolint:gosec // for those whose it is
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, upstream.URL(path), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := upstream.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxGrant))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp.StatusCode, raw)
	}
	var grant sandboxapi.Grant
	if json.Unmarshal(raw, &grant) != nil { // what is wrong with it might quote the token
		return nil, errors.New("the gateway's grant can't be read")
	}
	return &grant, nil
}

// token reads the Pod's token, which the kubelet renews.
func (r *redeemer) token() (string, error) {
	f, err := os.Open(r.tokenFile)
	if err != nil {
		return "", fmt.Errorf("the Pod's token: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	raw, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", fmt.Errorf("the Pod's token: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", errors.New("the Pod's token: the file is empty")
	}
	return token, nil
}

// refusal words an answer that isn't a grant.
func refusal(status int, raw []byte) error {
	p := sandboxapi.NewProblem(status, sandboxapi.CodeInternal, "")
	_ = json.Unmarshal(raw, p) // what isn't a problem leaves the status as the reason
	reason := fmt.Errorf("the gateway answered %d %.64s: %.300s", status, p.Code, p.Detail)
	if status/100 == 4 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout {
		return fmt.Errorf("%w: %w", supervise.ErrRefused, reason)
	}
	return reason
}

// wait pauses; false means that ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
