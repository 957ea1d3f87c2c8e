// Package decider decides what the policy service appends: the calls that agents
// propose, people's answers, starts and results. Pure: state, command and time
// in, events or a refusal (*problem.Error) out.
//
//	proposed ─▶ allowed ─────────────────┬────────────▶ started ─┬─▶ completed
//	        │                            ▲ └──────▶ delegated ───┴─▶ lapsed (unfinished)
//	        ├─▶ pending ─▶ approved ─────┘
//	        │          ├─▶ denied | expired | cancelled | superseded
//	        └─▶ denied             (allowed and approved may lapse unstarted)
//
// What the run's client runs itself is delegated to it in the envelope that allows
// or approves it; the client brings the result, or the call lapses.
package decider
