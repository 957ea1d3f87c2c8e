package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/holdfast/cli"
)

// farApart is how much the server's clock may differ from ours: deadlines that a
// person reads are the server's.
const farApart = 5 * time.Second

// examineServer looks at the server that is reached from here.
func examineServer(ctx context.Context, o *cli.Options) []Finding {
	url, _, err := o.Resolve()
	if err != nil {
		return []Finding{warning("server", "none is running here", err.Error())}
	}
	ready, away, err := readiness(ctx, url)
	if err != nil {
		return []Finding{broken("server", err.Error(), "start it with 'holdfast dev', or correct HOLDFAST_URL")}
	}
	found := []Finding{fine("server", "%s", url)}
	if !ready.Ready {
		found[0] = broken("server", url+" is not ready", "see its parts below")
	}
	for _, p := range ready.Parts {
		switch name := "server." + p.Name; {
		case !p.Ready:
			found = append(found, broken(name, p.Detail, "look at that part; commands answer not-ready meanwhile, and nothing accepted is lost"))
		case p.Degraded:
			found = append(found, warning(name, p.Detail, "see docs/operations.md"))
		default:
			found = append(found, fine(name, "%s", p.Detail))
		}
	}
	if away > farApart || away < -farApart {
		found = append(found, warning("server.clock", fmt.Sprintf("it differs from this machine's by %s", away.Round(time.Second)), "let both be set by NTP"))
	} else {
		found = append(found, fine("server.clock", "as this machine's"))
	}
	return append(found, use(ctx, o)...)
}

// readiness asks whether the server is ready, and how far ahead of ours its clock is.
func readiness(ctx context.Context, url string) (r api.Readiness, away time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return r, 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, 0, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&r); err != nil {
		return r, 0, fmt.Errorf("%s does not answer as Holdfast does", url)
	}
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		away = time.Until(at)
	}
	return r, away, nil
}

// use looks at what only somebody who may use the server sees.
func use(ctx context.Context, o *cli.Options) []Finding {
	c, err := o.Client()
	if err != nil {
		return []Finding{broken("server.access", err.Error(), "correct HOLDFAST_URL and HOLDFAST_TOKEN")}
	}
	me, err := c.GetMeWithResponse(ctx)
	if err != nil {
		return []Finding{broken("server.access", cli.Explain(err), "use a token that the server knows, in HOLDFAST_TOKEN or --token")}
	}
	roles := make([]string, len(me.JSON200.Roles))
	for i, r := range me.JSON200.Roles {
		roles[i] = string(r)
	}
	access := fine("server.access", "%s in tenant %s, as %s", me.JSON200.ID, me.JSON200.Tenant, strings.Join(roles, ", "))
	return []Finding{access, parked(ctx, c), policies(ctx, c)}
}

// parked looks for sessions that a service gave up on.
func parked(ctx context.Context, c *apiclient.ClientWithResponses) Finding {
	const name = "server.parked"
	r, err := c.ListParkedWithResponse(ctx)
	switch {
	case err != nil:
		return warning(name, "not looked at: "+cli.Explain(err), "ask as an operator")
	case len(r.JSON200.Items) > 0:
		return broken(name, fmt.Sprintf("%d sessions are parked: a service failed at each ten times in a row", len(r.JSON200.Items)),
			"see 'holdfast parked list' for why, then 'holdfast parked retry'")
	}
	return fine(name, "no session is parked")
}

// policies looks for runtimes whose policy isn't there: all of their calls are denied.
func policies(ctx context.Context, c *apiclient.ClientWithResponses) Finding {
	const name = "server.policies"
	most := 200 // the API gives no more at a time
	runtimes, err := c.ListRuntimesWithResponse(ctx, &api.ListRuntimesParams{Limit: &most})
	if err != nil {
		return warning(name, "not looked at: "+cli.Explain(err), "ask as a developer or operator")
	}
	there, err := c.ListPoliciesWithResponse(ctx, &api.ListPoliciesParams{Limit: &most})
	if err != nil {
		return warning(name, "not looked at: "+cli.Explain(err), "ask as a developer or operator")
	}
	known := map[string]bool{}
	for _, p := range there.JSON200.Items {
		known[p.Name] = true
	}
	var lacking []string
	for _, r := range runtimes.JSON200.Items {
		if p := r.Spec.Policy; p != "" && !known[p] {
			lacking = append(lacking, fmt.Sprintf("%s names %s", r.Name, p))
		}
	}
	if len(lacking) > 0 {
		return warning(name, "runtimes without their policy: "+strings.Join(lacking, "; "), "apply the policy; until then each call of theirs is denied")
	}
	return fine(name, "every runtime's policy is there")
}
