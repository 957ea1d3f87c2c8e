/** The audit log: who did what to what, why, and how it came out. Filters are in the URL. */
import { html, useEffect, useRef, useState } from '../html.js';
import { api } from '../api.js';
import { explain, shortId, stamp } from '../format.js';
import { go, linkTo } from '../router.js';
import { Failure } from '../components/basics.js';
import { readable } from '../json.js';
import { Revealed } from '../text.js';

const PAGE = 100;
const FIELDS = ['session', 'actor', 'type', 'from', 'to'];
const TONES = { done: '', refused: 'bad', denied: 'bad', expired: 'wait', failed: 'bad' };

export function Audit({ query }) {
  const filter = Object.fromEntries(FIELDS.map((f) => [f, query.get(f) || '']));
  const list = useAudit(filter);
  return html`
    <div class="page-head"><h1>Audit</h1></div>
    <${Filters} key=${JSON.stringify(filter)} filter=${filter} types=${list.types} />
    ${list.error && html`<${Failure} error=${list.error} retry=${list.reload} />`}
    ${list.items && (list.items.length ? html`<${Table} entries=${list.items} />` : html`<p class="empty"><strong>No event fits.</strong></p>`)}
    ${!list.items && !list.error && html`<p class="muted">Loading…</p>`}
    ${list.next && html`<div class="more"><button type="button" disabled=${list.busy} onClick=${list.more}>${list.busy ? 'Loading…' : 'Older events'}</button></div>`}`;
}

function Filters({ filter, types }) {
  const [form, setForm] = useState(filter);
  const put = (name) => (event) => setForm({ ...form, [name]: event.target.value });
  function submit(event) {
    event.preventDefault();
    go(linkTo(['audit'], form));
  }
  const field = (name, label, attributes) => html`<label class="field">${label}
    <input name=${name} value=${form[name]} onInput=${put(name)} autocomplete="off" ...${attributes} /></label>`;
  return html`
    <form class="filters" onSubmit=${submit} role="search" aria-label="Filter events">
      ${field('session', 'Session', { placeholder: 's-…', maxlength: 22 })}
      ${field('actor', 'Actor', { placeholder: 'user:bob' })}
      ${field('type', 'Type', { placeholder: 'call.denied', list: 'event-types' })}
      ${field('from', 'From', { type: 'datetime-local', step: 1 })}
      ${field('to', 'Before', { type: 'datetime-local', step: 1 })}
      <div class="answer"><button class="primary">Filter</button>
        ${FIELDS.some((f) => filter[f]) && html`<a class="button" href="#/audit">Clear</a>`}</div>
      <datalist id="event-types">${types.map((t) => html`<option key=${t} value=${t}></option>`)}</datalist>
    </form>`;
}

function Table({ entries }) {
  return html`
    <div class="table-box"><table class="as-list" id="audit" aria-label="Events">
      <thead><tr><th>Time</th><th>Event</th><th>Actor</th><th>Subject</th><th>Outcome</th><th>Cause</th><th><span class="unseen">Data</span></th></tr></thead>
      <tbody>${entries.map((e) => html`<${Row} key=${e.seq + '.' + e.n} entry=${e} />`)}</tbody>
    </table></div>`;
}

function Row({ entry: e }) {
  const [open, setOpen] = useState(false);
  return html`
    <tr class="pick">
      <td class="nowrap"><time datetime=${e.time}>${stamp(e.time)}</time></td>
      <td class="mono nowrap">${e.type}</td>
      <td class="nowrap">${e.actor}</td>
      <td class="nowrap"><${Subject} entry=${e} /></td>
      <td><span class="tag ${TONES[e.outcome] ?? ''}">${e.outcome}</span>${e.enforcement && html` <span class="tag">${e.enforcement}</span>`}</td>
      <td class="muted"><${Revealed} text=${e.cause || ''} /></td>
      <td><button type="button" class="link" aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? 'Hide' : 'Data'}</button></td>
    </tr>
    ${open && html`<tr><td class="cell-data wide" colspan="7">
      <pre class="block" tabindex="0"><${Revealed} text=${readable(e.data)} /></pre>
      <p class="small muted">n ${e.n} · seq ${e.seq} · decided by ${e.service} · command ${e.command}</p></td></tr>`}`;
}

function Subject({ entry: e }) {
  if (e.kind !== 'session') return html`${e.kind} ${e.subject}`;
  return html`<a class="mono" title=${e.subject} href=${linkTo(['sessions', e.subject], { n: String(e.n) })}>${shortId(e.subject)} <span class="muted">n ${e.n}</span></a>`;
}

/** Pages of the log under a filter. Types that were seen are offered when filtering. */
function useAudit(filter) {
  const [list, setList] = useState({ items: null });
  const types = useRef(new Set());
  const wanted = useRef(0);
  const asked = JSON.stringify(filter);

  async function read(cursor) {
    const turn = ++wanted.current;
    setList((l) => ({ ...l, busy: true, error: null }));
    try {
      const page = await api.listAudit({ ...queryOf(filter), limit: PAGE, cursor });
      if (turn !== wanted.current) return; // another filter was chosen meanwhile
      for (const e of page.items) types.current.add(e.type);
      setList((l) => ({ items: cursor ? [...l.items, ...page.items] : page.items, next: page.next, busy: false }));
    } catch (err) {
      if (turn === wanted.current) setList((l) => ({ ...l, busy: false, error: explain(err) }));
    }
  }
  useEffect(() => { setList({ items: null }); read(); }, [asked]);
  return { ...list, types: [...types.current].sort(), reload: () => read(), more: () => read(list.next) };
}

/** Types are separated by commas or spaces; times are typed in local time and sent in UTC. */
function queryOf({ session, actor, type, from, to }) {
  const utc = (local) => (local ? new Date(local).toISOString() : '');
  return { session: session.trim(), actor: actor.trim(), type: type.split(/[\s,]+/).filter(Boolean), from: utc(from), to: utc(to) };
}
