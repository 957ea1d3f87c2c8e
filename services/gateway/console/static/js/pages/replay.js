/**
 * A session's history, to be played, stepped through and scrubbed, with the state beside
 * it as of each moment. It shows, and decides nothing. A moment has a link:
 * `#/sessions/<id>/replay?n=12&k=3`, three frames after event 12; `with=5` compares it
 * with what was after event 5.
 */
import { html, useEffect, useMemo, useRef, useState } from '../html.js';
import { linkTo } from '../router.js';
import { Tape } from '../tape.js';
import { Player } from '../player.js';
import { Moments } from '../moments.js';
import { Failure } from '../components/basics.js';
import { MomentPanel } from '../components/moment.js';
import { Scrubber } from '../components/scrubber.js';
import { TimelineView } from '../components/timeline-view.js';

/** The address bar follows after this many milliseconds of rest: browsers refuse to be written to more often. */
const SETTLE = 400;

/** @param {{id: string, query: URLSearchParams}} props */
export function Replay({ id, query }) {
  const { tape, player, moments, version } = useReplay(id);
  const asked = { n: numberOf(query, 'n'), k: numberOf(query, 'k') };
  const other = useOther(numberOf(query, 'with'));
  const lost = useOpening(tape, player, asked, version);
  const { n, k } = tape.momentAt(player.place);
  const link = linkTo(['sessions', id, 'replay'], { n: String(n), k: k ? String(k) : '', with: other.n ? String(other.n) : '' });
  useAddress(n ? link : '', player.playing);
  useEffect(() => { moments.want(n, other.n); }, [n, other.n]);
  if (tape.error && !tape.length) return html`<${Failure} error=${tape.error} retry=${() => tape.read()} />`;
  return html`
    <header class="session-head replay-head">
      <div class="session-title">
        <h1><span class="tag wait">Replay</span> <a href=${linkTo(['sessions', id])}>${id}</a></h1>
        <span class="small muted">what happened, shown again; nothing here can be answered or changed</span>
      </div>
      <${Scrubber} tape=${tape} player=${player} link=${link} other=${other} n=${n} />
      ${lost && html`<p class="notice wait" role="status">${lost}</p>`}
      ${tape.error && html`<p class="notice bad" role="alert">Not all of the history could be read: ${tape.error}</p>`}
    </header>
    <div class="replay">
      <${TimelineView} timeline=${player.timeline} version=${version} current=${player.playing ? null : player.timeline.last} watching label="Replay" />
      <${MomentPanel} tape=${tape} player=${player} moments=${moments} n=${n} k=${k} other=${other} />
    </div>`;
}

function numberOf(query, name) {
  const text = query.get(name) || '';
  return /^\d{1,15}$/.test(text) ? Number(text) : 0;
}

/** What plays, and the states beside it; version counts their changes, drawn together. */
function useReplay(id) {
  const [version, setVersion] = useState(0);
  const drawing = useRef(0);
  const parts = useMemo(() => {
    function changed() {
      drawing.current ||= (document.hidden ? setTimeout : requestAnimationFrame)(() => {
        drawing.current = 0;
        setVersion((v) => v + 1);
      });
    }
    const tape = new Tape(id, () => { parts.player.more(); changed(); });
    const player = new Player(tape, changed);
    return { tape, player, moments: new Moments(id, changed) };
  }, [id]);
  useEffect(() => {
    parts.tape.read();
    return () => { parts.tape.stop(); parts.player.stop(); parts.moments.stop(); };
  }, [parts]);
  return { ...parts, version };
}

/** The moment that is compared with; the address names it on arrival. */
function useOther(asked) {
  const [n, set] = useState(asked);
  useEffect(() => { set(asked); }, [asked]);
  return { n, set };
}

/** Goes to the moment of the address as soon as it was read, once for each address. */
function useOpening(tape, player, { n, k }, version) {
  const name = `${n}.${k}`;
  const opened = useRef('');
  const [lost, setLost] = useState('');
  useEffect(() => {
    if (opened.current === name || !tape.length) return;
    const place = n ? tape.placeOf({ n, k }) : 1;
    if (place === undefined && !tape.whole) return;
    opened.current = name;
    setLost(place === undefined ? `There is no event ${n} in this session, up to now; this is its end.` : '');
    player.seek(place ?? tape.length);
  }, [name, version]);
  return lost || (opened.current === name || !n ? '' : `Reading the history up to event ${n}…`);
}

/** The address bar names the moment that is shown, so that it can be kept and shared. */
function useAddress(link, playing) {
  useEffect(() => {
    if (!link || playing) return undefined;
    const timer = setTimeout(() => history.replaceState(null, '', link), SETTLE);
    return () => clearTimeout(timer);
  }, [link, playing]);
}
