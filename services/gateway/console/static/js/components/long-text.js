/** Text of any length: the beginning is drawn at once, the rest for who asks, and never silently. */
import { html, useState } from '../html.js';
import { bytes, sizeOf } from '../format.js';
import { piecesOf, Revealed } from '../text.js';

/** So many characters are drawn at once; a browser lays them out in a moment. */
export const AT_ONCE = 24 * 1024;
/** Pieces are drawn apart, so that what is there isn't drawn again. */
const PIECE = 8 * 1024;

/** @param {{text: string, whole?: boolean, onWhole?: () => void}} props whole: somebody has asked for all of it, where that is known outside */
export function LongText({ text, whole, onWhole }) {
  const [asked, ask] = useState(false);
  const shown = whole ?? asked ? text : text.slice(0, AT_ONCE);
  return html`${piecesOf(shown, PIECE).map((piece, i) => html`<${Revealed} key=${i} text=${piece} />`)}
    ${shown.length < text.length && html`<strong class="rest" role="note">${bytes(sizeOf(text.slice(shown.length)))} more are not drawn yet.
      <button type="button" class="link" onClick=${onWhole ?? (() => ask(true))}>Show all of it</button></strong>`}`;
}
