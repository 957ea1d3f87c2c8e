/**
 * Text from agents is shown as what it is. Characters that hide, reorder or erase
 * are shown by their number: an approver must see what will run, not what it was
 * dressed up as.
 */
import { html, Component } from './html.js';

// Controls but newline and tab; soft hyphen; fillers that look like nothing; marks and
// overrides of direction; zero-width characters; separators; variation and tag characters.
const HIDING =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|[\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu;

/** @returns {boolean} whether the text holds characters that can't be seen as they are */
export function hides(text) {
  return text.search(HIDING) >= 0; // test would remember where it was, and the next search begin there
}

/**
 * @param {string} text
 * @returns {Array} strings and marked characters, in order
 */
export function reveal(text) {
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(HIDING)) {
    // A line's end in the style of Windows hides nothing.
    if (match[0] === '\r' && text[match.index + 1] === '\n') continue;
    if (match.index > last) parts.push(text.slice(last, match.index));
    const name = `U+${match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
    parts.push(html`<span class="hidden-char" title="A character that can’t be seen">${name}</span>`);
    last = match.index + match[0].length;
  }
  if (last < text.length) parts.push(text.slice(last));
  return parts;
}

/** A piece of text that is drawn again only when it changes: output can be long. */
export class Revealed extends Component {
  shouldComponentUpdate(next) {
    return next.text !== this.props.text;
  }

  render({ text }) {
    return html`<span>${reveal(text)}</span>`;
  }
}
