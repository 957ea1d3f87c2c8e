/** One session, live: what it is, all that happened in it, and a place to write to it. */
import { html, useEffect, useMemo, useRef, useState } from '../html.js';
import { api } from '../api.js';
import { explain } from '../format.js';
import { readUpTo } from '../fresh.js';
import { Outbox } from '../outbox.js';
import { allows } from '../phases.js';
import { followSession, may, takePrompt, useStore } from '../store.js';
import { Timeline } from '../timeline.js';
import { Failure } from '../components/basics.js';
import { Composer } from '../components/composer.js';
import { SessionHead } from '../components/session-head.js';
import { TimelineView } from '../components/timeline-view.js';

/** The session is read again this long after something happened to it; a burst is one read. */
const SETTLE = 150;

/** @param {{id: string, n: number}} props n: the event that the URL leads to, 0 for none */
export function SessionPage({ id, n }) {
  const { timeline, version, problem, changed } = useTimeline(id);
  const [session, setSession, error, reload] = useSession(id, changed);
  const past = usePast(id, n);
  const { outgoing, returned, send } = useOutbox(id);
  if (problem || (error && !session)) return html`<${Failure} error=${problem || error} retry=${reload} />`;
  if (!session) return html`<p class="muted">Loading…</p>`;
  const writes = may('admin', 'developer') && allows(session.phase, 'message');
  return html`
    <${SessionHead} session=${past || session} asOf=${past ? n : 0} onChanged=${setSession} />
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    <${TimelineView} timeline=${timeline} version=${version} target=${n} outgoing=${outgoing} />
    ${writes && html`<${Composer} session=${id} busy=${Boolean(session.run)} returned=${returned} onSend=${send} />`}`;
}

/**
 * Follows the session from its beginning. Frames of one moment are taken in together:
 * output can come faster than a screen is drawn.
 */
function useTimeline(id) {
  const timeline = useMemo(() => new Timeline(), [id]);
  const [version, setVersion] = useState(0);
  const [changed, setChanged] = useState(0);
  const [problem, setProblem] = useState('');
  useEffect(() => {
    let waiting = [];
    let drawing = 0;
    function draw() {
      drawing = 0;
      for (const frame of waiting) timeline.take(frame);
      // Output changes nothing of the session itself.
      const last = waiting.findLast((f) => f.kind !== 'agui' && f.n);
      if (last) setChanged(last.n);
      waiting = [];
      setVersion((v) => v + 1);
    }
    const stop = followSession(id, (frame) => {
      if (frame.kind === 'prompt') takePrompt(frame.data, frame.time);
      waiting.push(frame);
      // A hidden page is given no animation frames.
      drawing ||= document.hidden ? setTimeout(draw, 100) : requestAnimationFrame(draw);
    }, (p) => setProblem(p.status === 404 ? 'There is no such session here.' : p.detail || p.title));
    return () => { stop?.(); cancelAnimationFrame(drawing); clearTimeout(drawing); };
  }, [id]);
  return { timeline, version, changed, problem };
}

/**
 * The session as of the last event that changed it; an older answer never replaces a newer one.
 * @param {string} id @param {number} changed n of that event, 0 before any
 */
function useSession(id, changed) {
  const [session, setSession] = useState(null);
  const [error, setError] = useState('');
  const [again, setAgain] = useState(0);
  const take = (fresh) => { setSession((s) => (s && s.n > fresh.n ? s : fresh)); setError(''); };
  useEffect(() => {
    const leaving = new AbortController();
    const read = () => readUpTo(id, changed, take, leaving.signal).catch((err) => { if (!leaving.signal.aborted) setError(explain(err)); });
    const timer = setTimeout(read, changed ? SETTLE : 0);
    return () => { clearTimeout(timer); leaving.abort(); };
  }, [id, changed, again]);
  return [session, take, error, () => setAgain((a) => a + 1)];
}

/** The session as it was at an event; null for now, and where the past can't be read. */
function usePast(id, n) {
  const [past, setPast] = useState(null);
  useEffect(() => {
    setPast(null);
    if (n) api.getSession(id, { asOf: n }).then(setPast, () => setPast(null));
  }, [id, n]);
  return n ? past : null;
}

function useOutbox(id) {
  const [outgoing, setOutgoing] = useState([]);
  const [returned, setReturned] = useState(null);
  const outbox = useRef();
  const live = useStore((s) => s.connection.state === 'live');
  useEffect(() => {
    outbox.current = new Outbox(id, setOutgoing, (message, err) => setReturned({ content: message.content, why: explain(err) }));
    outbox.current.start();
    return () => outbox.current.stop();
  }, [id]);
  useEffect(() => { if (live) outbox.current?.hurry(); }, [live]);
  function send(text, whenBusy) {
    setReturned(null);
    outbox.current.add(text, whenBusy);
  }
  return { outgoing, returned, send };
}
