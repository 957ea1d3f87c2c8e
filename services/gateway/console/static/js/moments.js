/**
 * A session's state as of any n, from the server, which folds it from the log. While
 * somebody moves through the history one moment is asked for at a time, the latest that
 * is wanted; what was read once is kept.
 */
import { api } from './api.js';
import { explain, shortId, stamp } from './format.js';
import { plain } from './text.js';
import { callLook } from './phases.js';

/** So many states are kept; each is about a kilobyte. */
const KEPT = 500;
/** Whoever moves on within this many milliseconds didn't want the moment. */
const REST = 80;

export class Moments {
  /** @param {string} id the session's @param {() => void} onChange a state came, or can't be read */
  constructor(id, onChange) {
    Object.assign(this, { id, onChange, wanted: [], busy: false, error: '' });
    /** @type {Map<number, object>} sessions by n, least lately used first */
    this.known = new Map();
    this.cancelled = new AbortController();
  }

  stop() {
    this.cancelled.abort();
    clearTimeout(this.timer);
  }

  /** @returns {object|undefined} the session as of n, where it was read */
  at(n) {
    const session = this.known.get(n);
    if (session) {
      this.known.delete(n);
      this.known.set(n, session);
    }
    return session;
  }

  /** Says which moments are shown now; what was wanted before and isn't read yet no longer matters. */
  want(...ns) {
    this.wanted = ns.filter((n) => n > 0);
    clearTimeout(this.timer);
    if (!this.busy && this.next()) this.timer = setTimeout(() => this.read(), REST);
  }

  next() {
    return this.wanted.find((n) => !this.known.has(n));
  }

  async read() {
    const n = this.next();
    if (!n || this.busy) return;
    this.busy = true;
    try {
      this.keep(n, await api.getSession(this.id, { asOf: n }, this.cancelled.signal));
      this.error = '';
    } catch (err) {
      this.error = explain(err);
      this.wanted = this.wanted.filter((w) => w !== n);
    }
    this.busy = false;
    if (this.cancelled.signal.aborted) return;
    this.onChange();
    this.read();
  }

  keep(n, session) {
    this.known.set(n, session);
    if (this.known.size > KEPT) this.known.delete(this.known.keys().next().value);
  }
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/;
/** Said elsewhere on the page, or the same at every moment. */
const CONSTANT = new Set(['id', 'tenant', 'n', 'seq']);
/** A call in one of these is open: something still comes of it. */
const OPEN = new Set(['saying', 'proposed', 'allowed', 'pending', 'approved', 'started']);

/**
 * The state of a moment as fields: the session's as the server folded it, and how many
 * messages and calls the timeline held.
 * @param {object} session @param {import('./timeline.js').Timeline} timeline as of the same moment
 * @returns {Map<string, string>} what people read, by the field's path
 */
export function fieldsOf(session, timeline) {
  const fields = new Map();
  for (const [name, value] of Object.entries(session)) if (!CONSTANT.has(name)) put(fields, name, value);
  const calls = new Map();
  let messages = 0;
  for (const item of timeline.items) {
    if (item.kind === 'user' || item.kind === 'agent') messages++;
    if (item.kind !== 'call' || !item.callId) continue;
    calls.set(item.state, (calls.get(item.state) || 0) + 1);
    if (OPEN.has(item.state)) fields.set(`open call ${shortId(item.callId.split('.').pop())}`, `${plain(item.tool)}, ${callLook(item.state)[0]}`);
  }
  fields.set('messages', String(messages));
  for (const [state, n] of calls) fields.set(`calls: ${callLook(state)[0]}`, String(n));
  return fields;
}

function put(fields, path, value) {
  if (value !== null && typeof value === 'object') {
    for (const [name, part] of Object.entries(value)) put(fields, `${path}.${name}`, part);
  } else if (value !== null && value !== undefined && value !== '') {
    fields.set(path, TIME.test(value) ? stamp(value) : plain(String(value)));
  }
}

/** @returns {Array<{field: string, from?: string, to?: string}>} what differs, in the order of the fields */
export function changes(from, to) {
  const names = new Set([...from.keys(), ...to.keys()]);
  return [...names].filter((name) => from.get(name) !== to.get(name)).map((field) => ({ field, from: from.get(field), to: to.get(field) }));
}
