/** A session played again at its own pace, or faster. It shows, and decides nothing. */
import { html, useEffect, useRef, useState } from '../html.js';
import { stamp } from '../format.js';
import { linkTo } from '../router.js';
import { Timeline } from '../timeline.js';
import { TimelineView } from '../components/timeline-view.js';

const SPEEDS = { 1: 'as it was', 4: '4 times as fast', 20: '20 times as fast', 100: '100 times as fast', 0: 'at once' };
const KINDS = ['agui', 'event', 'prompt', 'control'];

export function Replay({ id }) {
  const [speed, setSpeed] = useState('4');
  const player = usePlayer(id, speed);
  return html`
    <header class="session-head">
      <div class="session-title">
        <h1>Replay of <a href=${linkTo(['sessions', id])}>${id}</a></h1>
        <span class="tag ${player.state === 'failed' ? 'bad' : 'wait'}">${STATES[player.state]}</span>
        <div class="end">
          <label class="small">Speed <select value=${speed} onChange=${(e) => setSpeed(e.target.value)}>
            ${Object.keys(SPEEDS).sort((a, b) => (Number(a) || Infinity) - (Number(b) || Infinity)).map((s) => html`<option key=${s} value=${s}>${SPEEDS[s]}</option>`)}
          </select></label>
          ${player.state === 'playing' && html`<button type="button" onClick=${player.pause}>Pause</button>`}
          ${(player.state === 'paused' || player.state === 'failed') && html`<button type="button" onClick=${player.play}>Play</button>`}
          <button type="button" onClick=${player.restart}>Start over</button>
        </div>
      </div>
      <div class="meta"><span>${player.timeline.time ? html`at <b>${stamp(player.timeline.time)}</b>` : 'starting'}</span><span>event <b>${player.timeline.n}</b></span></div>
    </header>
    <${TimelineView} timeline=${player.timeline} version=${player.version} watching label="Replay" />`;
}

const STATES = { playing: 'playing', paused: 'paused', ended: 'at its end', failed: 'interrupted' };

/**
 * Plays by server-sent events. Pausing closes the stream; playing on, or at another
 * speed, asks for what comes after the last frame.
 */
function usePlayer(id, speed) {
  const [state, setState] = useState('playing');
  const [version, setVersion] = useState(0);
  const tape = useRef({ timeline: new Timeline(), cursor: '' });

  useEffect(() => {
    if (state !== 'playing') return undefined;
    const query = new URLSearchParams({ speed, ...(tape.current.cursor ? { after: tape.current.cursor } : {}) });
    const source = new EventSource(`/v1/sessions/${encodeURIComponent(id)}/replay?${query}`);
    let drawing = 0;
    const draw = () => { drawing = 0; setVersion((v) => v + 1); };
    function take({ data }) {
      const frame = JSON.parse(data);
      tape.current.timeline.take(frame);
      if (frame.cursor) tape.current.cursor = frame.cursor;
      drawing ||= requestAnimationFrame(draw);
      if (frame.kind === 'control' && frame.data.type === 'end') setState('ended');
    }
    for (const kind of KINDS) source.addEventListener(kind, take);
    // A cut stream is not tried again by itself: it would go on at a time nobody chose.
    source.onerror = () => setState((s) => (s === 'playing' ? 'failed' : s));
    return () => { source.close(); cancelAnimationFrame(drawing); };
  }, [id, speed, state]);

  function restart() {
    tape.current = { timeline: new Timeline(), cursor: '' };
    setVersion((v) => v + 1);
    setState('paused');
    setTimeout(() => setState('playing'));
  }
  return { timeline: tape.current.timeline, version, state, restart, pause: () => setState('paused'), play: () => setState('playing') };
}
