/**
 * Folds the frames of one session into what is shown of it: messages, calls, lines
 * of its life, gaps. The same frames give the same timeline, live, after a reconnect
 * or in a replay.
 *
 * Items are changed in place and count their changes in `rev`, so that a view draws
 * again only what changed: output comes in many small pieces.
 */
import { aguiLineOf, gapOf, lineOf } from './events.js';
import { canonical } from './json.js';
import { piecesOf } from './text.js';
import { Calls } from './timeline-calls.js';

/** Text is cut into pieces of about this length, of which only the last ever changes. */
const PIECE = 8_192;
/** Of a very long text the view keeps this much; an item says how much it left out. */
const KEPT = 512 * 1024;

/** AG-UI's text-like events, by what they begin, go on and end. */
const TEXT = {
  TEXT_MESSAGE_START: 'begin', TEXT_MESSAGE_CONTENT: 'add', TEXT_MESSAGE_END: 'end', TEXT_MESSAGE_CHUNK: 'add',
  REASONING_MESSAGE_START: 'begin', REASONING_MESSAGE_CONTENT: 'add', REASONING_MESSAGE_END: 'end', REASONING_MESSAGE_CHUNK: 'add',
};

export class Timeline {
  constructor() {
    /** @type {object[]} what is shown, in order */
    this.items = [];
    this.keys = new Set();
    this.messages = new Map();
    /** user messages by the run that answers them */
    this.askedFor = new Map();
    this.calls = new Calls(this);
    /** n of the last event that was taken in */
    this.n = 0;
    this.time = null;
    this.ended = false;
    /** the item that was added or changed last */
    this.last = null;
  }

  /** @param {object} frame of openapi.yaml; a repeat of an event changes nothing */
  take(frame) {
    // Control frames are the gateway's own, of now, also in a replay.
    if (frame.kind !== 'control') this.time = frame.time;
    const logged = frame.kind === 'event' || frame.kind === 'prompt';
    if (logged) {
      if (frame.n <= this.n) return;
      this.n = frame.n;
    }
    switch (frame.kind) {
      case 'event': this.event(frame, frame.data); break;
      case 'prompt': this.calls.prompt(frame, frame.data); break;
      case 'agui': for (const event of frame.data) this.agui(frame, event); break;
      case 'control': this.control(frame, frame.data); break;
      default: break;
    }
  }

  /** Adds an item, or finds again the one that has its key. */
  add(item, frame) {
    item.rev = 0;
    item.time = frame.time;
    item.ns = frame.n && frame.kind !== 'agui' ? [frame.n] : [];
    const key = `${item.kind}:${item.id ?? this.items.length}`;
    item.key = this.keys.has(key) ? `${key}:${this.items.length}` : key; // another log may use an id again
    this.keys.add(item.key);
    this.items.push(item);
    this.last = item;
    return item;
  }

  /** Notes that an item changed, and by which event. */
  touch(item, frame) {
    item.rev++;
    this.last = item;
    if (frame?.n && frame.kind !== 'agui') item.ns.push(frame.n);
  }

  event(frame, event) {
    const d = event.data;
    if (event.type === 'session.message-received') this.asked(frame, d);
    else if (event.type === 'run.message-recorded') this.recorded(frame, d);
    else if (event.type.startsWith('call.')) this.calls.event(frame, event);
    if (event.type.startsWith('run.')) this.run(event.type, d);
    if (event.type === 'session.ended') this.ended = true;
    const line = lineOf(event);
    if (line) this.add({ kind: 'line', type: event.type, actor: event.actor, run: d.runId, ...line }, frame);
  }

  asked(frame, d) {
    const item = this.add({ kind: 'user', id: d.messageId, run: d.runId, by: d.requester, text: textOf(d.content), queued: true }, frame);
    this.askedFor.set(d.runId, item);
  }

  /** A message waits until its run begins, or is taken out of the queue. */
  run(type, d) {
    const item = this.askedFor.get(d.runId);
    if (!item) return;
    if (type === 'run.started') item.queued = false;
    else if (type === 'run.finished' && item.queued) Object.assign(item, { queued: false, dropped: true });
    else return;
    this.touch(item);
  }

  /**
   * A completed message, from the log. Mostly its text has been streamed already;
   * where the stream has aged out, this is what remains.
   */
  recorded(frame, d) {
    if (d.role === 'tool') return this.calls.result(frame, d.message?.toolCallId, d.message?.content);
    const item = this.messages.get(d.messageId);
    if (!item) {
      const text = textOf(d.message?.content);
      if (text) this.append(this.message(frame, d.messageId, d.role, false), text);
      for (const call of d.message?.toolCalls || []) this.calls.named(frame, call.id, call.function?.name, call.function?.arguments);
      return undefined;
    }
    item.open = false;
    return this.touch(item, frame);
  }

  agui(frame, event) {
    const step = TEXT[event.type];
    if (step) {
      const reasoning = event.type.startsWith('REASONING');
      const item = this.messages.get(event.messageId) || this.message(frame, event.messageId, event.role || 'assistant', reasoning);
      if (event.delta) this.append(item, event.delta);
      if (step === 'end') item.open = false;
      this.touch(item);
    } else if (event.type.startsWith('TOOL_CALL_')) {
      this.calls.agui(frame, event);
    } else {
      const line = aguiLineOf(event);
      if (line) this.add({ kind: 'line', type: event.type, ...line }, frame);
    }
  }

  message(frame, id, role, reasoning) {
    const item = this.add({ kind: 'agent', id, role, reasoning, pieces: [''], length: 0, dropped: 0, first: 0, open: true }, frame);
    this.messages.set(id, item);
    return item;
  }

  append(item, text) {
    const first = item.pieces.pop();
    item.pieces.push(...piecesOf(first + text, PIECE));
    item.length += text.length;
    while (item.length > KEPT && item.pieces.length > 1) {
      const gone = item.pieces.shift().length;
      item.length -= gone;
      item.dropped += gone;
      item.first++;
    }
    this.touch(item);
  }

  control(frame, control) {
    if (control.type === 'gap') {
      this.add({ kind: 'gap', text: gapOf(control), reason: control.reason }, frame);
      for (const approval of control.snapshot?.approvals || []) this.calls.prompt(frame, approval);
      if (control.reason === 'epoch') this.n = 0;
    }
    if (control.type === 'end') this.ended = true;
  }

  /** @returns {object|undefined} the item that the event with this number belongs to */
  at(n) {
    return this.items.find((item) => item.ns.includes(n)) || this.items.findLast((item) => item.ns[0] <= n);
  }
}

/** @returns {string} the text of an AG-UI content: a string, or the text of its parts */
export function textOf(content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return content == null ? '' : canonical(content);
  return content.map((part) => part.text ?? `[${part.type}]`).join('\n');
}
