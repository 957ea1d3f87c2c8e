/** The controls of a replay: where it is, how it moves, and the link to here. */
import { html, useEffect, useRef, useState } from '../html.js';
import { count, span, stamp } from '../format.js';
import { LONGEST, SPEEDS } from '../player.js';

/** A copied link says so for this long, in milliseconds. */
const SAID = 2_500;

/** @param {{tape: object, player: object, link: string, other: {n: number, set: (n: number) => void}, n: number}} props */
export function Scrubber({ tape, player, link, other, n }) {
  const { place } = player;
  const { k } = tape.momentAt(place);
  const moment = n ? `event ${n}${k ? `, ${count(k, 'frame')} later` : ''}` : 'before the first event';
  const when = tape.timeAt(place);
  const toggle = () => (player.playing ? player.pause() : player.play());
  function keys(event) {
    if (event.key !== ' ') return;
    event.preventDefault();
    toggle();
  }
  // A live session goes on: its end is looked for anew.
  const toEnd = () => { player.pause(); tape.read().then(() => player.seek(tape.length)); };
  // At an end a button does nothing, and keeps the focus.
  const move = (name, icon, run, disabled) => html`<button type="button" class="icon" aria-label=${name} title=${name} aria-disabled=${disabled} onClick=${run}><${Icon} path=${icon} /></button>`;
  return html`
    <div class="scrubber" role="group" aria-label="Replay controls">
      <input type="range" class="scrub" aria-label="Moment" min="0" max=${tape.length} value=${place} step="1" onInput=${(e) => { player.pause(); player.seek(Number(e.target.value)); }}
        onKeyDown=${keys} aria-valuetext=${when ? `${moment}, ${stamp(when)}` : moment} />
      <div class="scrub-row">
        ${move('To the beginning', ICONS.first, () => { player.pause(); player.seek(1); }, place <= 1)}
        ${move('One step back', ICONS.back, () => player.step(-1), place <= 0)}
        <button type="button" class="primary play" onClick=${toggle}>${player.playing ? 'Pause' : 'Play'}</button>
        ${move('One step forward', ICONS.forward, () => player.step(1), place >= tape.length)}
        ${move('To the end', ICONS.last, toEnd, false)}
        <label class="small">Speed <select value=${player.speed} onChange=${(e) => player.pace(Number(e.target.value))}>
          ${SPEEDS.map((s) => html`<option key=${s} value=${s}>${s}×</option>`)}
        </select></label>
        <span class="where"><b>${moment}</b> ${when && html`<time datetime=${when}>${stamp(when)}</time>`}
          <span class="muted"> of ${count(tape.frames.length ? tape.nAt(tape.length) : 0, 'event')}${tape.whole ? '' : ', still reading…'}</span></span>
        <span class="end">
          ${other.n ? html`<button type="button" onClick=${() => other.set(0)}>Stop comparing</button>`
            : html`<button type="button" disabled=${!n} onClick=${() => other.set(n)}>Compare from here</button>`}
          <${CopyLink} link=${link} />
        </span>
      </div>
      <p class="small muted pace" role="status">${player.shortened
        ? html`A pause of <b>${span(player.shortened)}</b> is played in ${LONGEST / 1000} s.`
        : `Pauses longer than ${LONGEST / 1000} s are shortened. In the bar: arrow keys step, Page keys leap, Space plays.`}</p>
    </div>`;
}

const ICONS = {
  first: 'M4 3h2v10H4zM13 3v10L7 8z', back: 'M11 3v10L5 8z', forward: 'M5 3v10l6-5z', last: 'M10 3h2v10h-2zM3 3v10l6-5z',
};

const Icon = ({ path }) => html`<svg viewBox="0 0 16 16" aria-hidden="true"><path d=${path} /></svg>`;

/** Copies the link to the moment; where the browser forbids that, shows it to be copied. */
function CopyLink({ link }) {
  const [state, setState] = useState('');
  const shown = useRef();
  const whole = new URL(link, location.href).href;
  useEffect(() => {
    if (state === 'shown') shown.current.select();
    if (state !== 'copied') return undefined;
    const timer = setTimeout(() => setState(''), SAID);
    return () => clearTimeout(timer);
  }, [state]);
  async function copy() {
    try {
      await navigator.clipboard.writeText(whole);
      setState('copied');
    } catch {
      setState('shown'); // no permission, or plain http inside a network
    }
  }
  return html`
    <button type="button" onClick=${copy}>${state === 'copied' ? 'Copied' : 'Copy link'}</button>
    ${state === 'shown' && html`<input ref=${shown} class="link-text" aria-label="Link to this moment" readonly value=${whole} onBlur=${() => setState('')} />`}
    <span class="unseen" role="status">${state === 'copied' ? 'The link to this moment was copied.' : ''}</span>`;
}
