// Package decider decides what the policy service appends: the calls that agents
// propose, people's answers, starts and results. Pure: state, command and time
// in, events or a refusal (*problem.Error) out.
//
//	proposed ─▶ allowed ──────────────────────────────▶ started ─▶ completed
//	        │                                        ▲      └────▶ lapsed (unfinished)
//	        ├─▶ pending ─▶ approved ─────────────────┘
//	        │          ├─▶ denied | expired | cancelled | superseded
//	        └─▶ denied             (allowed and approved may lapse unstarted)
package decider
