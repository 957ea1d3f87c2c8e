/** The sessions: where each is in its life, and which wait for a person. */
import { html, useEffect, useRef, useState } from '../html.js';
import { api } from '../api.js';
import { count, explain, shortId, stamp, who } from '../format.js';
import { readUpTo } from '../fresh.js';
import { go, linkTo } from '../router.js';
import { may, onSessionChanged, useStore } from '../store.js';
import { PHASES } from '../phases.js';
import { Age, Failure, Phase, useNow } from '../components/basics.js';
import { CreateDialog } from './create.js';

const PAGE = 50;
/** More changes than this at once are read as one list, not one by one. */
const ONE_BY_ONE = 8;
/** Changes of a busy moment are read together. */
const SETTLE = 250;

export function Sessions({ query }) {
  const phases = query.getAll('phase').filter((p) => PHASES.includes(p));
  const list = useSessions(phases);
  const [creating, setCreating] = useState(false);
  const waiting = useStore((s) => Object.keys(s.pending || {}).length);
  const toggle = (phase) => go(linkTo(['sessions'], {
    phase: phases.includes(phase) ? phases.filter((p) => p !== phase) : [...phases, phase],
  }));
  return html`
    <div class="page-head">
      <h1>Sessions</h1>
      ${waiting > 0 && html`<a href="#/approvals" class="tag wait">${count(waiting, 'question')} waiting for an answer</a>`}
      <div class="end">${may('admin', 'developer') && html`<button type="button" class="primary" onClick=${() => setCreating(true)}>New session</button>`}</div>
    </div>
    <div class="chips" role="group" aria-label="Only these phases">
      <button type="button" aria-pressed=${!phases.length} onClick=${() => go('#/sessions')}>all</button>
      ${PHASES.map((p) => html`<button type="button" key=${p} aria-pressed=${phases.includes(p)} onClick=${() => toggle(p)}>${p}</button>`)}
    </div>
    ${list.error && html`<${Failure} error=${list.error} retry=${list.reload} />`}
    <div class="live-state">
      ${list.items && (list.items.length ? html`<${Table} sessions=${list.items} />` : html`<${Empty} filtered=${phases.length > 0} />`)}
      ${!list.items && !list.error && html`<p class="muted">Loading…</p>`}
      ${list.next && html`<div class="more"><button type="button" onClick=${list.more} disabled=${list.busy}>${list.busy ? 'Loading…' : 'Older sessions'}</button></div>`}
    </div>
    ${creating && html`<${CreateDialog} onClose=${() => setCreating(false)} />`}`;
}

function Empty({ filtered }) {
  if (filtered) return html`<p class="empty"><strong>No session is in these phases.</strong><a href="#/sessions">Show all</a></p>`;
  return html`<p class="empty"><strong>No sessions yet.</strong>${may('admin', 'developer') ? 'Make one with “New session”, or ' : ''}
    <code>holdfast session create</code></p>`;
}

function Table({ sessions }) {
  const now = useNow(5_000);
  return html`
    <div class="table-box"><table class="as-list" id="sessions" aria-label="Sessions">
      <thead><tr><th>Session</th><th>Phase</th><th>Waiting</th><th>Runtime</th><th>Owner</th><th>Age</th><th>Isolation</th><th>Labels</th></tr></thead>
      <tbody>${sessions.map((s) => html`<${Row} key=${s.id} session=${s} now=${now} />`)}</tbody>
    </table></div>`;
}

function Row({ session: s, now }) {
  return html`
    <tr class="pick ${s.waiting ? 'waits' : ''}">
      <td><a class="mono" href=${linkTo(['sessions', s.id])} title=${s.id}>${shortId(s.id)}</a></td>
      <td><${Phase} session=${s} /></td>
      <td>${s.waiting > 0 && html`<a href=${linkTo(['sessions', s.id])}><span class="tag wait">${count(s.waiting, 'question')}</span></a>`}</td>
      <td class="nowrap">${s.runtime.name}<span class="muted">@${s.runtime.revision}</span></td>
      <td>${who(s.owner)}</td>
      <td class="nowrap" data-label="age" title=${stamp(s.createdAt)}><${Age} time=${s.createdAt} now=${now} /></td>
      <td class="muted">${s.isolation || '–'}</td>
      <td>${Object.keys(s.labels).length > 0 && html`<span class="tags">${Object.entries(s.labels).map(([k, v]) => html`<span class="tag" key=${k}>${k}=${v}</span>`)}</span>`}</td>
    </tr>`;
}

/**
 * The list, live: the inbox says which session changed, and each is read again as
 * it is now. New ones come on top.
 */
function useSessions(phases) {
  const filter = phases.join(',');
  const [list, setList] = useState({ items: null, next: undefined, error: null, busy: false });
  const ref = useRef();
  ref.current = { list, phases };

  async function reload() {
    try {
      const page = await api.listSessions({ phase: ref.current.phases, limit: PAGE });
      setList({ items: page.items, next: page.next, error: null, busy: false });
      return page.items;
    } catch (err) {
      setList((l) => ({ ...l, error: explain(err), busy: false }));
      return [];
    }
  }
  async function more() {
    setList((l) => ({ ...l, busy: true }));
    try {
      const page = await api.listSessions({ phase: ref.current.phases, limit: PAGE, cursor: ref.current.list.next });
      setList((l) => ({ items: merge(l.items, page.items), next: page.next, error: null, busy: false }));
    } catch (err) {
      setList((l) => ({ ...l, error: explain(err), busy: false }));
    }
  }
  async function refresh(changed, signal) {
    const take = (fresh) => setList((l) => (l.items ? { ...l, items: update(l.items, [fresh], ref.current.phases) } : l));
    const all = changed.has(null) || changed.size > ONE_BY_ONE;
    // In a list, too, some may be as they were before.
    const behind = all ? (await reload()).filter((s) => s.n < changed.get(s.id)).map((s) => s.id) : changed.keys();
    for (const id of behind) readUpTo(id, changed.get(id), take, signal).catch(() => {}); // its next change reads it again
  }

  useEffect(() => { setList({ items: null }); reload(); }, [filter]);
  useEffect(() => {
    const leaving = new AbortController();
    const changed = new Map();
    let timer;
    const stop = onSessionChanged((id, n) => {
      changed.set(id, Math.max(n || 0, changed.get(id) || 0));
      timer ??= setTimeout(() => {
        timer = undefined;
        refresh(new Map(changed), leaving.signal);
        changed.clear();
      }, SETTLE);
    });
    return () => { stop(); clearTimeout(timer); leaving.abort(); };
  }, []);
  return { ...list, reload, more };
}

function merge(items, more) {
  const known = new Set(items.map((s) => s.id));
  return [...items, ...more.filter((s) => !known.has(s.id))];
}

/** Puts fresh sessions in; one that left the filter goes, an older state than the shown one is dropped. */
function update(items, fresh, phases) {
  const fits = (s) => !phases.length || phases.includes(s.phase);
  const byID = new Map(fresh.map((s) => [s.id, s]));
  const kept = items.map((s) => (byID.get(s.id)?.n >= s.n ? byID.get(s.id) : s)).filter(fits);
  const known = new Set(items.map((s) => s.id));
  // Only newer ones are new; an old session that changed belongs to a later page.
  const newest = items.length ? Date.parse(items[0].createdAt) : 0;
  const added = fresh.filter((s) => !known.has(s.id) && fits(s) && (phases.length || Date.parse(s.createdAt) >= newest));
  return [...added, ...kept].sort((a, b) => Date.parse(b.createdAt) - Date.parse(a.createdAt));
}
