package rest

import (
	"context"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiserver"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// GetApproval shows a question as it stands, from the log.
func (a *API) GetApproval(ctx context.Context, req apiserver.GetApprovalRequestObject) (apiserver.GetApprovalResponseObject, error) {
	out, err := a.approval(ctx, req.ID)
	return apiserver.GetApproval200JSONResponse(out), err
}

// approval reads a call's question. A call that nobody was asked about has none.
func (a *API) approval(ctx context.Context, id string) (api.Approval, error) {
	missing := problem.New(api.CodeNotFound, "There is no such approval in this tenant.")
	in, ok := events.SessionOfCall(id)
	if !ok {
		return api.Approval{}, missing
	}
	var out api.Approval
	err := a.cfg.Live.Session(ctx, auth.From(ctx).Tenant, in, func(s *session.State) error {
		call := s.Calls[id]
		if call == nil || call.Asked == nil {
			return missing
		}
		out = approvalOf(view.ApprovalOf(s, call))
		return nil
	})
	return out, err
}

// hashPrefix may stand before a hash; services know the bare one.
const hashPrefix = "sha256:"

// DecideApproval answers a question.
func (a *API) DecideApproval(ctx context.Context, req apiserver.DecideApprovalRequestObject) (apiserver.DecideApprovalResponseObject, error) {
	out, seq, first, err := a.Decide(ctx, req.ID, *req.Body, req.Params.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	if first {
		return apiserver.DecideApproval201JSONResponse{Body: out, Headers: apiserver.DecideApproval201ResponseHeaders{HoldfastSeq: seq}}, nil
	}
	return apiserver.DecideApproval200JSONResponse{Body: out, Headers: apiserver.DecideApproval200ResponseHeaders{HoldfastSeq: seq}}, nil
}

// Decide answers a question as the context's principal, over REST or over the
// WebSocket. first says that this is the answer that counts, not a repetition.
func (a *API) Decide(ctx context.Context, id string, body api.DecideApproval, key *string) (out api.Approval, seq uint64, first bool, err error) {
	in, ok := events.SessionOfCall(id)
	if !ok {
		return out, 0, false, problem.New(api.CodeNotFound, "There is no such approval in this tenant.")
	}
	answer := verbs.AnswerBody{
		Call: id, Decision: string(body.Decision), ArgsHash: strings.TrimPrefix(body.ArgsHash, hashPrefix), Comment: body.Comment,
	}
	hash, err := hashOf(answer)
	if err != nil {
		return out, 0, false, err
	}
	var result verbs.AnswerResult
	reply, err := a.send(ctx, write{
		service: events.ServicePolicy, verb: verbs.Answer, operation: "decideApproval", key: key, names: []string{id}, unique: hash,
		session: in, body: answer,
	}, &result)
	if err != nil {
		return out, 0, false, err
	}
	out, err = a.approval(ctx, id)
	return out, reply.Seq, result.First, err
}
