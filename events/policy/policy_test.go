package policy_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/revisions/revisionstest"
)

func TestSuite(t *testing.T) {
	revisionstest.Run(t, revisionstest.Aggregate[policy.Spec]{
		New: policy.New, Owner: events.ServicePolicy, Applied: policy.TypeApplied, Removed: policy.TypeRemoved,
		Change: func(s policy.Spec) policy.Spec { s.Default = policy.Deny; return s },
		Spec: policy.Spec{
			Name: "coder", Default: policy.Ask,
			Rules: []policy.Rule{{
				Name: "deploys", When: `tool == "deploy" && args.n > 1`, Then: policy.Ask, Reason: "look first",
				Ask: &policy.AskFor{
					Approvers: []string{"group:sre", "user:bob"}, ExcludeRequester: true, Deadline: events.Duration(30 * time.Minute),
					OnDeadline: policy.Deny, NeverExpire: true, ExecuteWithin: events.Duration(10 * time.Minute), Risk: "high", Message: "Deploy {{args.version}}?",
				},
			}},
			Tests: []policy.Test{{
				Name: "deploying", Call: policy.TestCall{Tool: "deploy", Args: json.RawMessage(`{"n":2}`)},
				User: json.RawMessage(`{"id":"alice"}`), Expect: policy.Ask,
			}},
		},
	})
}
