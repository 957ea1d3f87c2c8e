/**
 * The inbox: what waits for an answer, each with exactly what will run, and what was
 * settled lately.
 */
import { html, useEffect, useRef, useState } from '../html.js';
import { linkTo } from '../router.js';
import { useStore } from '../store.js';
import { Failure } from '../components/basics.js';
import { Outcome, Question } from '../components/question.js';
import { Revealed } from '../text.js';
import { canonical } from '../json.js';

/** A settled question stays in its place this long, so that people see how it came out. */
const LINGER = 5_000;

export function Approvals() {
  const pending = useStore((s) => s.pending);
  const recent = useStore((s) => s.recent);
  const error = useStore((s) => s.inboxError);
  const { shown, hold, release } = useSteadyList(pending, recent);
  const past = recent.filter((a) => !shown.some((b) => b.id === a.id));
  return html`
    <div class="page-head"><h1>Approvals</h1></div>
    ${error && html`<${Failure} error=${error} />`}
    <div class="live-state">
      <div class="stack" onPointerEnter=${hold} onPointerLeave=${release} onFocusIn=${hold} onFocusOut=${release}>
        ${shown.map((approval) => html`<${Question} key=${approval.id} approval=${approval} />`)}
      </div>
      ${pending && !shown.length && html`<p class="empty"><strong>Nothing waits for an answer.</strong>New questions appear here by themselves.</p>`}
      ${!pending && !error && html`<p class="muted">Loading…</p>`}
      ${past.length > 0 && html`<section class="section" aria-label="Recent"><h2>Recent</h2><${Recent} approvals=${past} /></section>`}
    </div>`;
}

/**
 * The open questions in an order that holds still: a list that moved under the pointer
 * would make people approve something else than they read. New ones come at the end,
 * settled ones go only after a moment, and not while the pointer or the focus is inside.
 */
function useSteadyList(pending, recent) {
  const order = useRef([]);
  const left = useRef(new Map());
  const held = useRef(false);
  const [, redraw] = useState(0);
  const now = Date.now();
  const open = Object.values(pending || {});
  const byID = new Map([...recent, ...open].map((a) => [a.id, a]));
  const added = open.filter((a) => !order.current.includes(a.id)).sort(byDeadline).map((a) => a.id);
  order.current = [...order.current, ...added].filter((id) => {
    if (pending?.[id]) return true;
    if (!left.current.has(id)) left.current.set(id, now);
    return byID.has(id) && (held.current || now - left.current.get(id) < LINGER);
  });
  const leaving = order.current.some((id) => !pending?.[id]);
  useEffect(() => {
    if (!leaving) return undefined;
    const timer = setInterval(() => redraw((n) => n + 1), 500);
    return () => clearInterval(timer);
  }, [leaving]);
  return {
    shown: order.current.map((id) => byID.get(id)).filter(Boolean),
    hold: () => { held.current = true; },
    release: () => { held.current = false; },
  };
}

/** The nearest deadline first; questions without one last. */
function byDeadline(a, b) {
  return (a.deadline ? Date.parse(a.deadline) : Infinity) - (b.deadline ? Date.parse(b.deadline) : Infinity) || a.n - b.n;
}

function Recent({ approvals }) {
  return html`
    <div class="table-box"><table class="as-list" aria-label="Recent answers">
      <thead><tr><th>Call</th><th>Outcome</th><th>Session</th></tr></thead>
      <tbody>${approvals.map((a) => html`
        <tr key=${a.id}>
          <td class="wide"><code><${Revealed} text=${a.tool} /> <${Revealed} text=${glimpse(a.args)} /></code></td>
          <td class="wide"><${Outcome} approval=${a} /></td>
          <td><a class="mono" href=${linkTo(['sessions', a.session], { n: String(a.n) })}>${a.session}</a></td>
        </tr>`)}</tbody>
    </table></div>`;
}

/** A settled call is shown shortened, and says so; the session has all of it. */
function glimpse(args) {
  const text = typeof args?.command === 'string' ? args.command : canonical(args);
  return text.length > 160 ? `${text.slice(0, 160)}… (${text.length} characters)` : text;
}
