package roster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Label is on each replica's lease; its value is the group.
const Label = "holdfast.dev/roster"

// DefaultFor is Config.For where that is 0.
const DefaultFor = 15 * time.Second

// forgetAfter is how many times For a lease is left that nobody renews.
const forgetAfter = 4

// leaveWithin is how long a replica that ends tries to give its lease back.
const leaveWithin = 2 * time.Second

// Config of a Roster. All but For and Changed is required.
type Config struct {
	// Leases are those of one namespace: each replica lists them, and patches (which makes
	// it) and deletes its own, and one that was left.
	Leases coordinationclient.LeaseInterface
	// Group is whose replicas they are, which begins the names of their leases and is the
	// value of their label; Identity is this replica's, and no other's.
	Group, Identity string
	// For is after how long without a sign of life a replica is taken for gone.
	For time.Duration
	// Changed is called, from Run, when more falls to this replica than before: what
	// happened while nobody took care of it is to be found. It must not wait.
	Changed func()
	Log     *slog.Logger
}

// Validate says what is missing.
func (c Config) Validate() error {
	if c.Leases == nil || c.Group == "" || c.Identity == "" || c.Log == nil || c.For < 0 {
		return errors.New("roster: Leases, Group, Identity and Log are required, and For can't be negative")
	}
	return nil
}

// Roster is one replica's part. Run keeps it; until that, and after it, nothing is its own.
type Roster struct {
	cfg  Config
	seen members
}

// New makes a roster.
func New(cfg Config) (*Roster, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.For == 0 {
		cfg.For = DefaultFor
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	return &Roster{cfg: cfg, seen: members{self: cfg.Identity, patience: cfg.For}}, nil
}

// Mine says whether this replica is to take care of a key now.
func (r *Roster) Mine(key string) bool { return r.seen.mine(key, time.Now()) }

// Run takes part until ctx ends, and then gives back what is this replica's.
func (r *Roster) Run(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			r.leave() //nolint:contextcheck // ctx is over
			return
		case <-again.C:
		}
		err := r.renew(ctx)
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			r.cfg.Log.Warn("other replicas aren't told that this one is there, and take over what it takes care of", "err", err)
		case err == nil && failing:
			r.cfg.Log.Info("other replicas are told again that this one is there")
		}
		if failing = err != nil; failing {
			again.Reset(r.cfg.For / 15)
		} else {
			again.Reset(r.cfg.For / 3)
		}
	}
}

// renew tells the others that this replica is there, and looks who else is.
func (r *Roster) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.For/3)
	defer cancel()
	begun := time.Now()
	if err := r.put(ctx); err != nil {
		return err
	}
	list, err := r.cfg.Leases.List(ctx, metav1.ListOptions{LabelSelector: Label + "=" + r.cfg.Group})
	if err != nil {
		return fmt.Errorf("leases of %s: %w", r.cfg.Group, err)
	}
	others := map[string]string{}
	for i := range list.Items {
		if l := &list.Items[i]; l.Name != r.name(r.cfg.Identity) && l.Spec.HolderIdentity != nil {
			others[*l.Spec.HolderIdentity] = l.ResourceVersion
		}
	}
	if r.seen.saw(others, begun, time.Now()) {
		r.cfg.Changed()
	}
	r.forget(ctx, list.Items)
	return nil
}

// put makes this replica's lease, or renews it.
func (r *Roster) put(ctx context.Context) error {
	now, seconds := metav1.NowMicro(), int32(max(r.cfg.For/time.Second, 1))
	body, err := json.Marshal(&coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: r.name(r.cfg.Identity), Labels: map[string]string{Label: r.cfg.Group}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &r.cfg.Identity, LeaseDurationSeconds: &seconds, RenewTime: &now},
	})
	if err != nil {
		return err
	}
	force := true
	_, err = r.cfg.Leases.Patch(ctx, r.name(r.cfg.Identity), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "holdfast", Force: &force})
	if err != nil {
		return fmt.Errorf("lease of %s: %w", r.cfg.Identity, err)
	}
	return nil
}

// forget removes leases that were left, or tries to each time. One of somebody who is back
// at this moment stays.
func (r *Roster) forget(ctx context.Context, leases []coordinationv1.Lease) {
	for i := range leases {
		l := &leases[i]
		if l.Spec.HolderIdentity == nil || !r.seen.left(*l.Spec.HolderIdentity, time.Now()) || !r.Mine(l.Name) {
			continue
		}
		err := r.cfg.Leases.Delete(ctx, l.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			r.cfg.Log.Info("a lease that was left is not removed", "lease", l.Name, "err", err)
		}
	}
}

// leave stops first, and then says so.
func (r *Roster) leave() {
	r.seen.leave()
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	err := r.cfg.Leases.Delete(ctx, r.name(r.cfg.Identity), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		r.cfg.Log.Info("this replica's lease is left, which others find in a while", "err", err)
	}
}

// name is that of a replica's lease: an identity may be no name of an object.
func (r *Roster) name(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return r.cfg.Group + "-" + hex.EncodeToString(sum[:8])
}
