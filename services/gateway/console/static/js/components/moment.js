/** The state of a session at one moment of its history, or what changed between two. */
import { html, useMemo, useState } from '../html.js';
import { changes, fieldsOf } from '../moments.js';
import { Timeline } from '../timeline.js';
import { useNarrow } from './basics.js';

/** @param {{tape: object, player: object, moments: object, n: number, k: number, other: {n: number}}} props */
export function MomentPanel({ tape, player, moments, n, k, other }) {
  const narrow = useNarrow();
  const [chosen, choose] = useState(null);
  const open = chosen ?? !narrow;
  const toggle = (event) => { event.preventDefault(); choose(!open); };
  const shown = useLastKnown(moments, n);
  const there = useFields(tape, moments, other.n);
  const here = shown && fieldsOf(shown, player.timeline);
  const title = other.n ? `From event ${other.n} to event ${n}` : `State as of event ${n}`;
  return html`
    <details class="moment" open=${open}>
      <summary onClick=${toggle}><h2>${title}</h2>${shown?.n !== n && n > 0 && html`<span class="small muted">reading…</span>`}</summary>
      ${moments.error && html`<p class="notice bad" role="alert">${moments.error}</p>`}
      <div class=${shown && shown.n !== n ? 'late' : ''}>
        ${!n && html`<p class="muted small">Nothing has happened yet.</p>`}
        ${here && n > 0 && !other.n && html`<${Fields} fields=${here} />`}
        ${here && there && other.n > 0 && html`<${Changes} from=${other.n} to=${n} rows=${changes(there, here)} />`}
      </div>
      ${k > 0 && html`<p class="small muted">What an agent says changes no state: this is as of event ${n}.</p>`}
    </details>`;
}

/** The session as of n; until it is read the one shown before stays, and is marked as late. */
function useLastKnown(moments, n) {
  const last = useMemo(() => ({ session: undefined }), [moments]);
  const session = moments.at(n);
  if (session) last.session = session;
  return last.session;
}

/** The fields at a moment that the player isn't at, folded anew from the tape. */
function useFields(tape, moments, n) {
  const session = n ? moments.at(n) : undefined;
  const place = n ? tape.placeOf({ n }) : undefined;
  return useMemo(() => {
    if (!session || place === undefined) return null;
    const timeline = new Timeline();
    for (const frame of tape.frames.slice(0, place)) timeline.take(frame);
    return fieldsOf(session, timeline);
  }, [session, place]);
}

function Fields({ fields }) {
  return html`<dl class="fields">${[...fields].map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function Changes({ from, to, rows }) {
  if (!rows.length) return html`<p class="muted small">Nothing of the state is different.</p>`;
  return html`
    <table class="changes" aria-label="What changed"><thead><tr><th scope="col">Field</th><th scope="col">Event ${from}</th><th scope="col">Event ${to}</th></tr></thead>
      <tbody>${rows.map((row) => html`
        <tr key=${row.field}><th scope="row">${row.field}</th>
          <td class="before">${row.from === undefined ? html`<span class="muted">not set</span>` : html`<del>${row.from}</del>`}</td>
          <td class="after">${row.to === undefined ? html`<span class="muted">not set</span>` : html`<ins>${row.to}</ins>`}</td></tr>`)}</tbody>
    </table>`;
}
