package dev

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// What a new dev has: the runtime "shell" and the policy "default".
var (
	//go:embed shell.yaml
	shellRuntime []byte
	//go:embed policy.yaml
	defaultPolicy []byte
)

// applyDefaults applies them through the services, as anybody would. What a person
// changed since is kept, until what dev comes with changes itself; what was removed
// comes back, because dev is of no use without it. there says what is not removed.
func applyDefaults(ctx context.Context, client *command.Client, there func(context.Context, events.Aggregate, string) bool) error {
	for _, d := range []struct {
		service   events.Service
		aggregate events.Aggregate
		verb      string
		name      string
		yaml      []byte
	}{
		{events.ServicePolicy, events.AggregatePolicy, verbs.PolicyApply, "default", defaultPolicy},
		{events.ServiceWorkload, events.AggregateRuntime, verbs.RuntimeApply, "shell", shellRuntime},
	} {
		spec, err := yaml.YAMLToJSON(d.yaml)
		if err != nil {
			return fmt.Errorf("default %s: %w", d.name, err)
		}
		body, err := json.Marshal(verbs.ApplyBody{Name: d.name, Spec: spec})
		if err != nil {
			return fmt.Errorf("default %s: %w", d.name, err)
		}
		// The same id for the same contents: a later start doesn't undo a change.
		id := events.HashID(events.PrefixCommand, "dev-default", d.name, string(d.yaml))
		if !there(ctx, d.aggregate, d.name) {
			id = events.RandomID(events.PrefixCommand)
		}
		_, err = client.Do(ctx, d.service, Tenant, d.verb, command.Request{
			CommandID: id, Actor: events.Actor{Kind: events.ActorService, ID: "dev"}, Body: body,
		})
		if err != nil {
			return fmt.Errorf("apply default %s: %w", d.name, err)
		}
	}
	return nil
}
