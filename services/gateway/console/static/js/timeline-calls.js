/**
 * The calls of a timeline. One call is told of by two sides: the agent streams what
 * it is about to ask (AG-UI's tool call), and the log holds what it really asked,
 * what was decided, and what came of it. Both become one item; where they differ, the
 * log is right.
 */
import { clock } from './format.js';
import { canonical } from './json.js';

/** Where events of the log take a call. */
const STATES = { 'call.started': 'started', 'call.delegated': 'delegated', 'call.completed': 'completed', 'call.lapsed': 'lapsed', 'call.cancelled': 'cancelled',
  'call.expired': 'expired', 'call.superseded': 'superseded', 'call.approved': 'approved', 'call.denied': 'denied' };
const DECIDED = { allow: 'allowed', deny: 'denied', ask: 'pending' };

/** Why a call that was allowed has no result. */
const lapse = (state, kind) => {
  if (state === 'delegated') return 'the client brought no result';
  return kind === 'unfinished' ? 'started, and never reported' : 'never started';
};

export class Calls {
  /** @param {import('./timeline.js').Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    /** by the agent's own id, and by ours */
    this.byAgent = new Map();
    this.byID = new Map();
  }

  open(frame, agentCallId, tool) {
    const item = this.timeline.add({ kind: 'call', id: `${agentCallId}:${this.timeline.items.length}`, tool, said: '', state: 'saying' }, frame);
    this.byAgent.set(agentCallId, item);
    return item;
  }

  agui(frame, event) {
    let item = this.byAgent.get(event.toolCallId);
    if (event.type === 'TOOL_CALL_RESULT') {
      this.result(frame, event.toolCallId, event.content);
      return;
    }
    if (!item) item = this.open(frame, event.toolCallId, event.toolCallName);
    item.tool ??= event.toolCallName;
    if (event.delta) item.said += event.delta;
    this.timeline.touch(item);
  }

  /** A call that a recorded message names, for when its stream is gone. */
  named(frame, agentCallId, tool, said) {
    if (this.byAgent.has(agentCallId)) return;
    this.open(frame, agentCallId, tool).said = said || '';
  }

  /** What the agent says came of it; the log's word, where there is one, counts. */
  result(frame, agentCallId, content) {
    const item = this.byAgent.get(agentCallId);
    if (!item || item.exitCode !== undefined || item.output !== undefined) return;
    item.answer = typeof content === 'string' ? content : canonical(content);
    this.timeline.touch(item, frame);
  }

  event(frame, { type, data: d }) {
    if (type === 'call.proposed') {
      this.proposed(frame, d);
      return;
    }
    const item = this.byID.get(d.callId);
    if (!item) return;
    if (type === 'call.decided') {
      item.state = DECIDED[d.decision] || d.decision;
      item.decided = d;
    }
    if (type === 'call.lapsed') item.note = lapse(item.state, d.kind);
    if (STATES[type]) item.state = STATES[type];
    if (type === 'call.started') item.startedAt = frame.time;
    if (type === 'call.completed') this.completed(item, frame, d);
    if (type === 'call.delegated') item.note = `the client runs it, until ${clock(d.deadline)}`;
    this.timeline.touch(item, frame);
  }

  proposed(frame, d) {
    let item = this.byAgent.get(d.agentCallId);
    // The same id again with other arguments is another call.
    if (!item || (item.callId && item.callId !== d.callId)) item = this.open(frame, d.agentCallId, d.tool);
    Object.assign(item, { callId: d.callId, tool: d.tool, args: d.args, argsHash: d.argsHash, requester: d.requester, state: 'proposed' });
    this.byID.set(d.callId, item);
    this.timeline.touch(item, frame);
  }

  completed(item, frame, d) {
    if (item.note) item.note = 'run by the client';
    Object.assign(item, { exitCode: d.exitCode, output: d.output ?? '', truncated: d.truncated, failure: d.error, endedAt: frame.time });
  }

  /** A question, or its settling: the approval as it stood then. */
  prompt(frame, approval) {
    let item = this.byID.get(approval.id);
    if (!item) {
      item = this.open(frame, approval.id, approval.tool);
      Object.assign(item, { callId: approval.id, args: approval.args, argsHash: approval.argsHash });
      this.byID.set(approval.id, item);
    }
    if (item.approval && item.approval.n > approval.n) return;
    item.approval = approval;
    item.state = approval.state;
    this.timeline.touch(item, frame);
  }
}
