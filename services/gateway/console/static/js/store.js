/**
 * What all pages share: who is signed in, how the connection is, what waits for an
 * answer, which sessions changed. One value, replaced as a whole; views subscribe.
 */
import { useEffect, useState } from './html.js';
import { api, whenUnauthenticated } from './api.js';
import { Stream } from './stream.js';
import { plain } from './text.js';

/** How many settled questions are kept to look back at. */
const RECENT = 30;
/** States in which a question was asked and is over. */
export const SETTLED = ['approved', 'denied', 'expired', 'cancelled', 'superseded'];

const initial = {
  /** undefined while it isn't known, null when signed out */
  me: undefined,
  connection: { state: 'connecting', since: Date.now(), heard: 0 },
  /** open questions by id; null until they were loaded */
  pending: null,
  /** settled ones, newest first */
  recent: [],
  /** why the questions can't be shown */
  inboxError: null,
  /** what was last said to people who can't see the page change */
  announcement: '',
};

let state = initial;
const listeners = new Set();
const sessionListeners = new Set();
/** @type {Stream|null} */
let stream = null;

/** @returns {typeof initial} */
export const current = () => state;

function set(change) {
  state = { ...state, ...change };
  for (const listener of listeners) listener(state);
}

/** @template T @param {(s: typeof initial) => T} select @returns {T} again whenever it changes */
export function useStore(select) {
  const [value, setValue] = useState(() => select(state));
  useEffect(() => {
    const changed = () => setValue(() => select(state));
    listeners.add(changed);
    changed(); // it may have changed between drawing and this
    return () => listeners.delete(changed);
  }, []);
  return value;
}

/** @returns {boolean} whether the signed-in person has one of these roles here */
export const may = (...roles) => Boolean(state.me?.roles.some((role) => roles.includes(role)));

/** Finds out who is signed in; throws when the server can't say. */
export async function begin() {
  whenUnauthenticated(signedOut);
  try {
    signedIn(await api.getMe());
  } catch (err) {
    if (err.status !== 401) throw err;
  }
}

/** @param {object} me as the server says */
export function signedIn(me) {
  stream?.stop();
  set({ ...initial, me });
  const url = new URL('/v1/ws', location.href);
  url.protocol = url.protocol.replace('http', 'ws');
  stream = new Stream(url.href, connected, signedOut);
  stream.subscribe(inboxSubscription());
  stream.start();
  loadInbox();
}

/** Ends what is live. Drafts and unsent messages stay: the same person may come back. */
export function signedOut() {
  stream?.stop();
  stream = null;
  set({ ...initial, me: null });
}

function connected(connection) {
  const back = connection.state === 'live' && state.connection.state !== 'live' && state.connection.heard > 0;
  set({ connection: { ...connection } });
  // A browser isn't told why a socket was refused; a plain call is.
  if (connection.state === 'lost') api.getMe().catch(() => {});
  if (back && state.inboxError) loadInbox();
}

/** Tries to connect at once, for people who don't want to wait. */
export const reconnect = () => stream?.connect();

/** @param {string} id @param {(frame: object) => void} onFrame @param {(problem: object) => void} onProblem */
export const followSession = (id, onFrame, onProblem) => stream?.subscribe({ target: { session: id }, onFrame, onProblem });

/** @param {(id: string|null, n?: number) => void} listener told which session changed, by its event n; null: any may have */
export function onSessionChanged(listener) {
  sessionListeners.add(listener);
  return () => sessionListeners.delete(listener);
}

/**
 * Lists say how things are; the inbox says what changes from there on. So lists are
 * read again once the inbox is followed, and after a gap in it.
 */
function inboxSubscription() {
  const readAll = () => {
    loadInbox();
    for (const listener of sessionListeners) listener(null);
  };
  return {
    target: { inbox: true },
    onBegin: readAll,
    onFrame(frame) {
      if (frame.kind === 'control') {
        if (frame.data.type === 'gap') readAll();
        return;
      }
      if (frame.kind === 'prompt') takePrompt(frame.data, frame.time);
      for (const listener of sessionListeners) listener(frame.session, frame.n);
    },
    onProblem: (problem) => set({ inboxError: problem.detail || problem.title }),
  };
}

async function loadInbox() {
  try {
    const [open, over] = await Promise.all([
      api.listApprovals({ state: 'pending', limit: 200 }),
      api.listApprovals({ state: SETTLED, limit: RECENT }),
    ]);
    const pending = {};
    for (const approval of open.items) pending[approval.id] = approval;
    // What came over the stream meanwhile is newer than the list.
    for (const approval of Object.values(state.pending || {})) {
      if (approval.fresh && !(pending[approval.id]?.n >= approval.n)) pending[approval.id] = approval;
    }
    for (const approval of state.recent) delete pending[approval.id];
    const known = new Set(state.recent.map((a) => a.id));
    const recent = [...state.recent, ...over.items.filter((a) => !known.has(a.id))].slice(0, RECENT);
    set({ pending, recent, inboxError: null });
  } catch (err) {
    set({ inboxError: err.message });
  }
}

/** Takes a question, or its settling, in; what is older than what is known changes nothing. */
export function takePrompt(approval, time) {
  const pending = { ...state.pending };
  const known = pending[approval.id] || state.recent.find((a) => a.id === approval.id);
  if (known && known.n >= approval.n && known.state === approval.state) return;
  if (approval.state === 'pending') {
    if (known) return;
    pending[approval.id] = { ...approval, fresh: true };
    const old = time && Date.now() - Date.parse(time) > 60_000;
    set({ pending, ...(old ? {} : { announcement: `New question: may ${plain(approval.tool)} run in ${approval.session}?` }) });
    return;
  }
  delete pending[approval.id];
  const recent = [{ ...approval, fresh: true }, ...state.recent.filter((a) => a.id !== approval.id)].slice(0, RECENT);
  set({ pending, recent });
}
