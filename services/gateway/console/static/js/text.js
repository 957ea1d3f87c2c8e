/**
 * Text from agents is shown as what it is. Characters that hide, reorder or erase are
 * shown by their number, and so are letters that pass for others: an approver must see
 * what will run, not what it was dressed up as.
 */
import { html, Component } from './html.js';

// Controls but newline and tab; spaces that aren't the space; soft hyphen; fillers that look like nothing; marks and
// overrides of direction; zero-width characters; separators; variation and tag characters; halves of characters.
// More marks stacked on one letter than any language needs, which would cover what is around them.
// A run of one of them is one match: a million of them must not become a million elements.
const HIDING =
  /([\u0000-\u0008\u000b-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]|[\ud800-\udfff])\1*|\p{M}{5,}/gu;

const STACKED = /^\p{M}{5,}$/u;

/** Letters of alphabets that share shapes with the Latin one, and Latin ones in disguise. */
const FOREIGN = /[\p{Script=Cyrillic}\p{Script=Greek}\p{Script=Armenian}\p{Script=Cherokee}\uff01-\uff5e\u{1d400}-\u{1d7ff}]+/u;
const FOREIGN_ALL = new RegExp(FOREIGN, 'gu');
const DISGUISED = /[\uff01-\uff5e\u{1d400}-\u{1d7ff}]/u;
const LATIN = /\p{Script=Latin}/u;
const WORD = /[\p{L}\p{M}\p{N}\uff01-\uff5e]+/gu;

/** A text with more marks than this has the rest of them in plain writing. */
const MOST = 64;

const number = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;

/** How a run of hiding characters is written. */
function written(run) {
  const [first] = run;
  if (STACKED.test(run) && new Set(run).size > 1) return `${Array.from(run).length} stacked marks`;
  const times = run.length / first.length;
  return times > 1 ? `${number(first)} ×${times}` : number(first);
}

/** A line's end in the style of Windows hides nothing. */
const endsLine = (match) => match[0] === '\r' && match.input[match.index + 1] === '\n';

/** @returns {string} what a reader should know about a text's characters; empty where they are what they look like */
export function suspicion(text) {
  const marks = suspects(text);
  const kinds = [marks.some((m) => m.hides) && 'characters that can’t be seen', marks.some((m) => !m.hides) && 'letters that look like others'];
  const said = kinds.filter(Boolean).join(' and ');
  return said && `holds ${said}`;
}

/** The places of a text to be marked, in order: what hides, and what is foreign in a word that is Latin otherwise. */
function suspects(text) {
  const marks = [];
  for (const match of text.matchAll(HIDING)) {
    if (!endsLine(match)) marks.push({ at: match.index, text: match[0], shown: written(match[0]), hides: true });
  }
  if (!FOREIGN.test(text)) return marks;
  const hidden = marks.length;
  for (const word of text.matchAll(WORD)) {
    if (!LATIN.test(word[0]) && !DISGUISED.test(word[0]) || !FOREIGN.test(word[0])) continue;
    for (const run of word[0].matchAll(FOREIGN_ALL)) {
      const shown = `${run[0]} ${Array.from(run[0].slice(0, 16), number).join(' ')}`;
      marks.push({ at: word.index + run.index, text: run[0], shown, hides: false });
    }
  }
  return hidden ? marks.sort((a, b) => a.at - b.at) : marks;
}

/**
 * @param {string} text
 * @returns {Array} strings and marked characters, in order; of bounded length
 */
export function reveal(text) {
  const parts = [];
  let last = 0;
  const marks = suspects(text);
  for (const mark of marks.slice(0, MOST)) {
    if (mark.at > last) parts.push(text.slice(last, mark.at));
    const why = mark.hides ? 'A character that can’t be seen' : 'Not the letter that it looks like';
    parts.push(html`<span class="hidden-char" title=${why}>${mark.shown}</span>`);
    last = mark.at + mark.text.length;
  }
  if (marks.length > MOST) parts.push(html`<span class="hidden-rest" title="With characters that can’t be seen">${spell(text, marks.slice(MOST), last)}</span>`);
  else if (last < text.length) parts.push(text.slice(last));
  return parts;
}

function spell(text, marks, from) {
  const parts = [];
  let last = from;
  for (const mark of marks) {
    parts.push(text.slice(last, mark.at), `⟨${mark.shown}⟩`);
    last = mark.at + mark.text.length;
  }
  parts.push(text.slice(last));
  return parts.join('');
}

/** @returns {string} the same for places that hold no elements: names for screen readers, announcements */
export const plain = (text = '') => spell(text, suspects(text), 0);

/**
 * Cuts a text into pieces of about a length, at least one. The halves of one character
 * stay together: apart they would be shown as broken.
 */
export function piecesOf(text, length) {
  const pieces = [];
  for (let from = 0; from < text.length;) {
    let to = Math.min(text.length, from + length);
    if (/[\ud800-\udbff]/.test(text[to - 1]) && to < text.length) to++;
    pieces.push(text.slice(from, to));
    from = to;
  }
  return pieces.length ? pieces : [''];
}

/** A word this long is broken wherever its line ends: to look for a better place in it costs by the square. */
const UNBROKEN = /\S{512}/;

/** A piece of text that is drawn again only when it changes: output can be long. */
export class Revealed extends Component {
  shouldComponentUpdate(next) {
    return next.text !== this.props.text;
  }

  render({ text }) {
    const said = String(text ?? '');
    return html`<span class=${UNBROKEN.test(said) ? 'unbroken' : undefined}>${reveal(said)}</span>`;
  }
}
