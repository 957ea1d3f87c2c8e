/** Text of any length: the beginning is drawn at once, the rest for who asks, and never silently. */
import { html, useState } from '../html.js';
import { bytes, sizeOf } from '../format.js';
import { Revealed } from '../text.js';

/** So many characters are drawn at once; a browser lays them out in a moment. */
export const AT_ONCE = 48 * 1024;
/** Pieces are drawn apart, so that what is there isn't drawn again. */
const PIECE = 8 * 1024;

/** @param {{text: string, whole?: boolean, onWhole?: () => void}} props whole: somebody has asked for all of it, where that is known outside */
export function LongText({ text, whole, onWhole }) {
  const [asked, ask] = useState(false);
  const shown = whole ?? asked ? text : text.slice(0, AT_ONCE);
  return html`${piecesOf(shown).map((piece, i) => html`<${Revealed} key=${i} text=${piece} />`)}
    ${shown.length < text.length && html`<strong class="rest" role="note">${bytes(sizeOf(text.slice(shown.length)))} more are not drawn yet.
      <button type="button" class="link" onClick=${onWhole ?? (() => ask(true))}>Show all of it</button></strong>`}`;
}

function piecesOf(text) {
  const pieces = [];
  for (let from = 0; from < text.length;) {
    let to = Math.min(text.length, from + PIECE);
    // The halves of one character stay together: apart they would be shown as broken.
    if (/[\ud800-\udbff]/.test(text[to - 1]) && to < text.length) to++;
    pieces.push(text.slice(from, to));
    from = to;
  }
  return pieces;
}
