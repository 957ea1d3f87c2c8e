/** Small parts that many pages use. */
import { html, useEffect, useLayoutEffect, useRef, useState } from '../html.js';
import { age, span, stamp } from '../format.js';
import { phaseLook } from '../phases.js';

/** A deadline this close is shown as urgent. */
const NEAR = 60_000;

/** The time, again each second. Views that show ages or deadlines use it, others must not. */
export function useNow(every = 1_000) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** @returns {boolean} whether the window is a phone's: the width at which the style sheets change */
export function useNarrow() {
  const [query] = useState(() => matchMedia('(max-width: 40rem)'));
  const [narrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const changed = () => setNarrow(query.matches);
    query.addEventListener('change', changed);
    return () => query.removeEventListener('change', changed);
  }, []);
  return narrow;
}

/** A phase in words and colour; how it ended where it has. */
export function Phase({ session }) {
  return html`<span class="phase ${phaseLook(session)}">${session.phase}${session.outcome ? ` · ${session.outcome}` : ''}</span>`;
}

/** How long ago, with the moment itself for who asks. */
export function Age({ time, now }) {
  return html`<time datetime=${time} title=${stamp(time)}>${age(time, now)}</time>`;
}

/** How long until a deadline; a passed one is settled by the server within seconds. */
export function Deadline({ time, now, label, passed = 'deadline passed' }) {
  if (!time) return null;
  const left = Date.parse(time) - now;
  const words = left > 0 ? html`${label} <time datetime=${time}>${span(left)}</time>` : html`${passed} <time datetime=${time}>${span(-left)} ago</time>`;
  return html`<span class="deadline ${left < NEAR ? 'near' : ''}" title=${stamp(time)}>${words}</span>`;
}

/** A failure that a page shows in place of what it should show. */
export function Failure({ error, retry }) {
  return html`<div class="notice bad" role="alert">${error} ${retry && html`<button class="link" type="button" onClick=${retry}>Try again</button>`}</div>`;
}

/**
 * For what changes its form while somebody works in it: where the element that had the
 * focus is gone, the focus goes to what is left, and not back to the page's beginning.
 * @returns {object} the ref of what is left, which needs tabindex="-1"
 */
export function useKeptFocus() {
  const ref = useRef();
  const held = ref.current?.contains(document.activeElement);
  useLayoutEffect(() => {
    if (held && !ref.current.contains(document.activeElement)) ref.current.focus({ preventScroll: true });
  });
  return ref;
}

/**
 * A modal dialog. The browser's own keeps the focus inside, closes on Escape, and
 * gives the focus back.
 */
export function Modal({ label, onClose, children }) {
  const ref = useRef();
  // Before it is painted, so that no key that is typed at once goes elsewhere.
  useLayoutEffect(() => {
    const dialog = ref.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return html`<dialog ref=${ref} aria-label=${label} onClose=${onClose}>${children}</dialog>`;
}
