/** Exactly what will run: every argument, unfolded, with its size. */
import { html, useEffect, useState } from '../html.js';
import { extent } from '../events.js';
import { plain, Revealed, suspicion } from '../text.js';
import { AT_ONCE, LongText } from './long-text.js';
import { checkHash } from '../hash.js';
import { canonical, readable } from '../json.js';

/** JSON this short is shown on one line. */
const ONE_LINE = 80;
/** A brief view says the size of what is longer than this. */
const LONG = 400;
/** More arguments than this are shown as one JSON: each in a frame of its own would be none's to read. */
const MANY = 64;

/**
 * Each argument is in its own frame, so that no text in one can pass for another.
 * Strings are shown as they are, everything else as JSON. Brief is for calls that
 * nobody is asked about; it shows no less.
 */
export function Args({ args, brief = false, whole, onWhole }) {
  const [raw, setRaw] = useState(false);
  const plain = args !== null && typeof args === 'object' && !Array.isArray(args);
  const all = plain ? Object.entries(args) : [['arguments', args]];
  const many = all.length > MANY;
  return html`
    <div class="args ${brief ? 'brief' : ''}">
      ${many && html`<p class="small muted">${all.length} arguments, shown as one JSON</p>`}
      ${raw || many || !all.length ? html`<${Arg} name="JSON" value=${canonical(args)} brief=${brief} whole=${whole} onWhole=${onWhole} />`
        : all.map(([name, value]) => html`<${Arg} key=${name} name=${name} value=${value} brief=${brief} whole=${whole} onWhole=${onWhole} />`)}
      ${all.length > 0 && !many && !brief && html`<div class="small"><button type="button" class="link" onClick=${() => setRaw(!raw)}>
        ${raw ? 'Show each argument' : 'Show the JSON that is hashed'}</button></div>`}
    </div>`;
}

function Arg({ name, value, brief, whole, onWhole }) {
  const text = typeof value === 'string' ? value : json(value);
  const size = brief && text.length < LONG ? '' : extent(text);
  const doubt = suspicion(name) || suspicion(text);
  return html`
    <div class="arg">
      <div class="arg-head">
        <b><${Revealed} text=${name} /></b>
        <span>${doubt && html`<strong class="tag bad">${doubt}</strong> `}${size}</span>
      </div>
      <pre tabindex="0" aria-label=${`Argument ${plain(name)}`}><${LongText} text=${text} whole=${whole} onWhole=${onWhole} /></pre>
    </div>`;
}

/** @returns {boolean} whether some of the arguments are drawn only when that is asked for */
export const isLong = (args) => canonical(args).length > AT_ONCE;

function json(value) {
  const short = canonical(value);
  return short.length <= ONE_LINE ? short : readable(value);
}

const VERDICTS = {
  matches: ['good', 'checked here: it is the hash of what you see'],
  masked: ['', 'over the unmasked arguments; parts are masked for everybody'],
  unchecked: ['', 'not checked: this page isn’t on https or localhost'],
  differs: ['bad', 'DOES NOT MATCH what is shown; don’t approve'],
};

/** @returns {string} 'checking', or what checkHash says */
export function useHashCheck(approval) {
  const [verdict, setVerdict] = useState('checking');
  useEffect(() => {
    let over = false;
    checkHash(approval.args, approval.argsHash).then((v) => { if (!over) setVerdict(v); });
    return () => { over = true; };
  }, [approval.id, approval.argsHash]);
  return verdict;
}

/** The hash that an answer echoes, in full, and whether it is the one of what is shown. */
export function Hash({ value, verdict }) {
  const [tone, words] = VERDICTS[verdict] || ['', ''];
  return html`<span><code>${value}</code> ${words && html`<span class="tag ${tone}">${words}</span>`}</span>`;
}
