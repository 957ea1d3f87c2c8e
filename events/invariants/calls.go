package invariants

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// calls tracks a session's tool calls.
type calls struct {
	byID  map[string]*call
	order []string
}

// call is what is known of one: its state after the design, the exact question,
// and who said what.
type call struct {
	state     session.CallState
	hash      string
	requester string
	asked     *session.CallHumanConfirmRequired
	toAsk     bool
	voters    []string
	approved  bool // by a vote
	denied    bool // by a vote
	executeBy time.Time
	nonce     string
}

// meets says in which states an event may meet its call.
var meets = map[string][]session.CallState{
	session.TypeCallDecided:              {session.CallStateProposed},
	session.TypeCallHumanConfirmRequired: {session.CallStateProposed},
	session.TypeCallVoteCast:             {session.CallStatePending},
	session.TypeCallApproved:             {session.CallStatePending},
	session.TypeCallDenied:               {session.CallStatePending},
	session.TypeCallExpired:              {session.CallStatePending},
	session.TypeCallCancelled:            {session.CallStateProposed, session.CallStatePending},
	session.TypeCallSuperseded:           {session.CallStatePending},
	session.TypeCallStarted:              {session.CallStateAllowed, session.CallStateApproved},
	session.TypeCallDelegated:            {session.CallStateAllowed, session.CallStateApproved},
	session.TypeCallCompleted:            {session.CallStateStarted, session.CallStateDelegated},
	session.TypeCallLapsed:               {session.CallStateAllowed, session.CallStateApproved, session.CallStateStarted, session.CallStateDelegated},
}

// idOf gives the call that an event is about; "" where it is about none.
func idOf(p session.Payload) string {
	switch p := p.(type) {
	case session.CallProposed:
		return p.CallID
	case session.CallDecided:
		return p.CallID
	case session.CallHumanConfirmRequired:
		return p.CallID
	case session.CallVoteCast:
		return p.CallID
	case session.CallAnswerRefused:
		return p.CallID
	case session.CallApproved:
		return p.CallID
	case session.CallDenied:
		return p.CallID
	case session.CallExpired:
		return p.CallID
	case session.CallCancelled:
		return p.CallID
	case session.CallSuperseded:
		return p.CallID
	case session.CallStarted:
		return p.CallID
	case session.CallDelegated:
		return p.CallID
	case session.CallCompleted:
		return p.CallID
	case session.CallLapsed:
		return p.CallID
	default: // nothing else is of its concern
	}
	return ""
}

func (c *calls) judge(meta events.Meta, p session.Payload, openRun string, over bool, found report) {
	if _, ended := p.(session.Ended); ended {
		for _, id := range c.order {
			if s := c.byID[id].state; !s.Final() {
				found(Calls, "ended while call %s is %s", id, s)
			}
		}
		return
	}
	id := idOf(p)
	if id == "" {
		return
	}
	known := c.byID[id]
	if proposed, ok := p.(session.CallProposed); ok {
		judgeProposed(proposed, known != nil, openRun, over, found)
		return
	}
	name := session.TypeOf(p)
	if known == nil {
		found(Calls, "%s of call %s, which was never proposed", name, id)
		return
	}
	if from, limited := meets[name]; limited && !slices.Contains(from, known.state) {
		found(Calls, "%s of call %s, which is %s", name, id, known.state)
	}
	known.judge(meta, p, openRun, over, found)
}

func judgeProposed(p session.CallProposed, known bool, openRun string, over bool, found report) {
	if known {
		found(Calls, "call %s was proposed twice", p.CallID)
	}
	if p.RunID != openRun || over {
		found(Calls, "call %s was proposed by run %s, but %q is open, or the session ends", p.CallID, p.RunID, openRun)
	}
	if _, hash, err := events.CanonicalArgs(p.Args); err != nil || hash != p.ArgsHash {
		found(Calls, "call %s was proposed under hash %s, but its arguments have %s", p.CallID, p.ArgsHash, hash)
	}
}

// judge judges what an event says of a known call, beside whether it may meet it.
func (c *call) judge(meta events.Meta, p session.Payload, openRun string, over bool, found report) {
	switch p := p.(type) {
	case session.CallDecided:
		if c.toAsk || !slices.Contains([]string{"allow", "deny", "ask"}, p.Decision) {
			found(Calls, "call %s was decided as %q, or twice", p.CallID, p.Decision)
		}
	case session.CallHumanConfirmRequired:
		if !c.toAsk {
			found(Calls, "people were asked about call %s, but the policy did not say so", p.CallID)
		}
	case session.CallVoteCast:
		c.judgeVote(meta, p, found)
	case session.CallApproved:
		if p.ArgsHash != c.hash {
			found(Calls, "call %s was approved with hash %s, but asked with %s", p.CallID, p.ArgsHash, c.hash)
		}
		if !c.approved && !c.byDeadline(meta.Time, "allow") {
			found(Calls, "call %s was approved without a vote", p.CallID)
		}
	case session.CallDenied:
		if !c.denied && !c.byDeadline(meta.Time, "deny") {
			found(Calls, "call %s was denied without a vote", p.CallID)
		}
	case session.CallExpired:
		if c.asked == nil || c.asked.Deadline.IsZero() || meta.Time.Before(c.asked.Deadline) {
			found(Calls, "call %s expired before its deadline", p.CallID)
		}
	case session.CallStarted:
		switch {
		case p.ArgsHash != c.hash:
			found(Calls, "call %s was started with hash %s, but decided with %s", p.CallID, p.ArgsHash, c.hash)
		case !c.executeBy.IsZero() && !meta.Time.Before(c.executeBy):
			found(Calls, "call %s was started after the time to execute it", p.CallID)
		case p.RunID != openRun || over:
			found(Calls, "call %s was started by run %s, but %q is open, or the session ends", p.CallID, p.RunID, openRun)
		}
	case session.CallDelegated:
		if !p.Deadline.After(meta.Time) || over {
			found(Calls, "call %s was delegated until %s at %s, or while the session ends", p.CallID, p.Deadline.Format(time.RFC3339Nano), meta.Time.Format(time.RFC3339Nano))
		}
	case session.CallCompleted:
		if c.state == session.CallStateStarted && p.Nonce != c.nonce {
			found(Calls, "call %s was completed under nonce %q, but started under %q", p.CallID, p.Nonce, c.nonce)
		}
	default: // nothing else is of its concern
	}
}

func (c *call) judgeVote(meta events.Meta, p session.CallVoteCast, found report) {
	switch {
	case meta.Actor.Kind != events.ActorPerson || p.By == "":
		found(Calls, "a vote on call %s by %s: only people vote", p.CallID, meta.Actor)
	case slices.Contains(c.voters, p.By):
		found(Calls, "%s voted twice on call %s", p.By, p.CallID)
	case p.ArgsHash != c.hash:
		found(Calls, "a vote on call %s with hash %s, but asked with %s", p.CallID, p.ArgsHash, c.hash)
	case c.asked != nil && c.asked.ExcludeRequester && p.By == c.requester:
		found(Calls, "%s, who is its requester, voted on call %s", p.By, p.CallID)
	case c.asked != nil && !c.asked.Deadline.IsZero() && !meta.Time.Before(c.asked.Deadline):
		found(Calls, "a vote on call %s at or after its deadline", p.CallID)
	}
}

// byDeadline says whether the question's deadline has passed and says so itself.
func (c *call) byDeadline(now time.Time, decision string) bool {
	return c.asked != nil && c.asked.OnDeadline == decision && !c.asked.Deadline.IsZero() && !now.Before(c.asked.Deadline)
}

func (c *calls) move(p session.Payload) {
	if proposed, ok := p.(session.CallProposed); ok {
		if c.byID[proposed.CallID] == nil {
			c.order = append(c.order, proposed.CallID)
		}
		c.byID[proposed.CallID] = &call{state: session.CallStateProposed, hash: proposed.ArgsHash, requester: proposed.Requester}
		return
	}
	if known := c.byID[idOf(p)]; known != nil {
		known.move(p)
	}
}

func (c *call) move(p session.Payload) {
	switch p := p.(type) {
	case session.CallDecided:
		c.executeBy = p.ExecuteBy
		switch p.Decision {
		case "allow":
			c.state = session.CallStateAllowed
		case "deny":
			c.state = session.CallStateDenied
		case "ask":
			c.toAsk = true
		}
	case session.CallHumanConfirmRequired:
		c.state, c.asked = session.CallStatePending, &p
	case session.CallVoteCast:
		c.voters = append(c.voters, p.By)
		c.approved = c.approved || p.Decision == "approve"
		c.denied = c.denied || p.Decision == "deny"
	case session.CallApproved:
		c.state, c.executeBy = session.CallStateApproved, p.ExecuteBy
	case session.CallDenied:
		c.state = session.CallStateDenied
	case session.CallExpired:
		c.state = session.CallStateExpired
	case session.CallCancelled:
		c.state = session.CallStateCancelled
	case session.CallSuperseded:
		c.state = session.CallStateSuperseded
	case session.CallStarted:
		c.state, c.nonce = session.CallStateStarted, p.Nonce
	case session.CallDelegated:
		c.state = session.CallStateDelegated
	case session.CallCompleted:
		c.state = session.CallStateCompleted
	case session.CallLapsed:
		c.state = session.CallStateLapsed
	default: // nothing else is of its concern
	}
}
