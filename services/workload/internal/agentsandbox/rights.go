package agentsandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-io/holdfast/services/internal/kuberights"
)

// ErrRights says that the driver may not do what it has to; see package kuberights for what
// that is.
var ErrRights = errors.New("rights are missing")

// errSilent says that a start was given up.
var errSilent = fmt.Errorf("the API server hasn't shown it in %s", startWithin)

const (
	// startWithin bounds the wait for all that exists to be known: whoever runs the service
	// starts it again, and sees why it ends.
	startWithin = time.Minute
	// askAfter is how long a watch may take to show what exists before the API server is asked
	// whether it may at all: an informer that is refused tries for ever, and says nothing.
	askAfter = 3 * time.Second
)

// synced waits until a watch shows all that exists. It is ErrRights, with the names of some,
// as soon as it is known that rights are missing.
func (d *Driver) synced(ctx context.Context, what string, i cache.SharedIndexInformer) error {
	for {
		wait, cancel := context.WithTimeout(ctx, askAfter)
		shown := cache.WaitForCacheSync(wait.Done(), i.HasSynced)
		cancel()
		if shown {
			return nil
		}
		if ctx.Err() == nil {
			if err := d.permitted(ctx); errors.Is(err, ErrRights) {
				return err
			} else if err != nil {
				d.cfg.Log.Warn("rights not asked for, trying again", "err", err)
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s can't be listed and watched: %w", what, context.Cause(ctx))
		}
	}
}

// permitted asks the API server for every right that the driver needs.
func (d *Driver) permitted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askAfter)
	defer cancel()
	needs := map[string][]kuberights.Right{}
	for _, namespace := range d.watched() {
		needs[namespace] = kuberights.Rights(kuberights.Tenant)
	}
	if d.cfg.Nodes {
		needs[metav1.NamespaceAll] = append(needs[metav1.NamespaceAll], kuberights.Rights(kuberights.Nodes)...)
	}
	const most = 4 // are named
	var missing []string
	for namespace, rights := range needs {
		for _, r := range rights {
			may, err := r.May(ctx, d.kube.AuthorizationV1(), namespace)
			if err != nil {
				return err
			}
			if !may {
				missing = append(missing, r.In(namespace))
			}
			if len(missing) > most {
				return fmt.Errorf("%w: may not %s and more: 'helm upgrade' makes the roles, 'holdfast doctor --kube' names all", ErrRights, strings.Join(missing[:most], ", "))
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: may not %s: 'helm upgrade' makes the roles", ErrRights, strings.Join(missing, ", "))
	}
	return nil
}

// watched are the namespaces that are watched; one that is all of them where none is named.
func (d *Driver) watched() []string {
	if len(d.cfg.Namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return d.cfg.Namespaces
}
