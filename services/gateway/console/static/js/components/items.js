/** What a timeline is made of, each kind of item with its own look. */
import { Component, html, useLayoutEffect, useRef, useState } from '../html.js';
import { bytes, clock, stamp, who } from '../format.js';
import { extent, took } from '../events.js';
import { callLook } from '../phases.js';
import { readable } from '../json.js';
import { Revealed } from '../text.js';
import { Args } from './args.js';
import { useKeptFocus } from './basics.js';
import { LongText } from './long-text.js';
import { Question, Outcome } from './question.js';

/** The drawing of an item that has not changed is given back as it is, and so costs nothing. */
const drawn = new WeakMap();

/** @param {object} item of a timeline @param {boolean} found the reader was led here @param {boolean} watching nothing can be answered here */
export function drawItem(item, found, watching) {
  const before = drawn.get(item);
  if (before?.rev === item.rev && before.found === found && before.watching === watching) return before.vnode;
  const vnode = html`<${Guard} key=${item.key} item=${item} rev=${item.rev}><${KINDS[item.kind]} item=${item} rev=${item.rev} found=${found} watching=${watching} /><//>`;
  drawn.set(item, { rev: item.rev, found, watching, vnode });
  return vnode;
}

/** What one item holds must not keep the others from being shown. */
class Guard extends Component {
  static getDerivedStateFromError(error) {
    return { error };
  }

  render({ item, children }, { error }) {
    return error ? html`<div class="gap" role="note">An item of ${clock(item.time)} can’t be shown: ${error.message}</div>` : children;
  }
}

const KINDS = { user: User, agent: Agent, call: Call, line: Line, gap: Gap };

function Frame({ item, kind, found, children }) {
  const ref = useKeptFocus();
  return html`
    <div ref=${ref} tabindex="-1" class="item item-${kind} ${found ? 'found' : ''}" id=${item.ns[0] ? `n${item.ns[0]}` : undefined} data-kind=${item.kind}>
      <time datetime=${item.time} title=${stamp(item.time)}>${clock(item.time)}</time>
      ${children}
    </div>`;
}

function User({ item, found }) {
  return html`
    <${Frame} item=${item} kind="user" found=${found}>
      <div>
        <div class="item-head"><b>${who(item.by)}</b>
          ${item.queued && html`<span class="tag wait">queued</span>`}${item.dropped && html`<span class="tag">cancelled before it began</span>`}</div>
        <div class="said"><${LongText} text=${item.text} /></div>
      </div>
    <//>`;
}

/** Of a long message so many pieces are drawn at once, the newest: layout costs by the character. */
const PIECES = 3;

function Agent({ item, found }) {
  const box = useRef();
  const [wanted, setWanted] = useState(PIECES);
  const from = Math.max(0, item.pieces.length - wanted);
  const before = item.pieces.slice(0, from).reduce((n, piece) => n + piece.length, 0);
  const atEnd = useRef(true);
  // A long text scrolls in its own frame, and follows its end unless the reader looks back.
  useLayoutEffect(() => { if (item.open && atEnd.current) box.current.scrollTop = box.current.scrollHeight; }, [item.rev]);
  const scrolled = () => { if (box.current) atEnd.current = box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < 24; };
  return html`
    <${Frame} item=${item} kind=${`agent ${item.reasoning ? 'reasoning' : ''}`} found=${found}>
      <div>
        <div class="item-head"><b>agent</b>${item.reasoning && html`<span class="muted">reasoning</span>`}
          ${item.dropped > 0 && html`<span class="tag wait">${bytes(item.dropped)} before this are not kept here</span>`}</div>
        <div class="said" ref=${box} onScroll=${scrolled} tabindex="0" role="group" aria-label="What the agent says">
          ${before > 0 && html`<strong class="rest" role="note">${bytes(before)} before this are not drawn yet.
            <button type="button" class="link" onClick=${() => setWanted(wanted + 4 * PIECES)}>Show earlier</button></strong>`}
          ${item.pieces.slice(from).map((text, i) => html`<${Revealed} key=${item.first + from + i} text=${text} />`)}${item.open && html`<span class="cursor" aria-label="still writing"></span>`}
        </div>
      </div>
    <//>`;
}

function Call({ item, found, watching }) {
  if (item.approval?.state === 'pending' && item.state === 'pending' && !watching) {
    return html`<${Frame} item=${item} kind="call" found=${found}><${Question} approval=${item.approval} place="session" /><//>`;
  }
  const [words, tone] = callLook(item.state);
  const time = took(item.startedAt, item.endedAt);
  return html`
    <${Frame} item=${item} kind="call" found=${found}>
      <div class="call" data-call=${item.callId}>
        <div class="call-head">
          <span class="tool"><${Revealed} text=${item.tool || 'call'} /></span>
          <span class="tag ${tone}">${words}</span>
          ${item.exitCode !== undefined && html`<span class="tag ${item.exitCode === 0 ? 'good' : 'bad'}">exit ${item.exitCode}</span>`}
          ${item.note && html`<span class="muted">${item.note}</span>`}
          <span class="end">${time}</span>
        </div>
        ${item.args !== undefined ? html`<${Args} args=${item.args} brief />` : item.said && html`<pre class="block" tabindex="0"><${LongText} text=${item.said} /></pre>`}
        <${Why} item=${item} />
        <${Result} item=${item} />
      </div>
    <//>`;
}

/** By which rule, or by whom, and why. */
function Why({ item }) {
  const { decided, approval } = item;
  return html`
    ${decided && html`<p class="why">Policy: ${decided.decision}${decided.rule ? ` by “${decided.rule}”` : ' by default'}
      ${decided.policy && ` of ${decided.policy}@${decided.revision}`} · enforcement: ${decided.enforcement}${decided.reason && html` · <${Revealed} text=${decided.reason} />`}</p>`}
    ${approval?.decision && html`<p class="why"><${Outcome} approval=${approval} /></p>`}`;
}

function Result({ item }) {
  const text = item.output || item.failure || (item.exitCode === undefined && item.output === undefined ? item.answer : '');
  if (!text) return null;
  return html`
    <${Unfold} item=${item} text=${() => text}
      summary=${`${item.failure ? 'Why it could not be executed' : 'Result as reported'} · ${extent(text)}${item.truncated ? ', cut by the agent to its end' : ''}`} />`;
}

/** Items that the reader unfolded; they stay so where they were out of view meanwhile. */
const unfolded = new WeakSet();

/** A text that is made and drawn only where somebody wants to read it. */
function Unfold({ item, summary, text }) {
  const [open, setOpen] = useState(unfolded.has(item));
  function toggled({ currentTarget }) {
    if (currentTarget.open) unfolded.add(item);
    else unfolded.delete(item);
    setOpen(currentTarget.open);
  }
  return html`
    <details open=${open} onToggle=${toggled}>
      <summary>${summary}</summary>
      ${open && html`<pre class="block" tabindex="0"><${LongText} text=${text()} /></pre>`}
    </details>`;
}

function Line({ item, found }) {
  return html`
    <${Frame} item=${item} kind=${`line ${item.tone}`} found=${found}>
      <div class="body"><span><${Revealed} text=${item.text} />
        ${item.actor?.startsWith('user:') && html` <span class="by">· ${who(item.actor)}</span>`}
        ${item.data && html`<${Unfold} item=${item} summary="data" text=${() => readable(item.data)} />`}</span></div>
    <//>`;
}

function Gap({ item }) {
  return html`<div class="gap" role="note" data-kind="gap">${item.text}</div>`;
}
