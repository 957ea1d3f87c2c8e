package cli

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/internal/agentcube"
)

// agentCube reads a manifest of AgentCube as a runtime. Its namespace has to be the
// caller's tenant.
func agentCube(ctx context.Context, c *apiclient.ClientWithResponses, text []byte) (d document, ok bool, err error) {
	if !agentcube.Is(text) {
		return d, false, nil
	}
	answered, err := c.GetMeWithResponse(ctx)
	me, err := answer(err, func() *api.Me { return answered.JSON200 })
	if err != nil {
		return d, true, err
	}
	runtime, err := agentcube.Read(text, me.Tenant)
	if err != nil {
		return d, true, err
	}
	body, err := json.Marshal(runtime.Spec)
	return document{name: runtime.Name, body: body, notes: runtime.Notes}, true, err
}
