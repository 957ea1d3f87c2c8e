/** Small parts that many pages use. */
import { html, useEffect, useRef, useState } from '../html.js';
import { age, stamp, until } from '../format.js';
import { phaseLook } from '../phases.js';

/** The time, again each second. Views that show ages or deadlines use it, others must not. */
export function useNow(every = 1_000) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** A phase in words and colour; how it ended where it has. */
export function Phase({ session }) {
  return html`<span class="phase ${phaseLook(session)}">${session.phase}${session.outcome ? ` · ${session.outcome}` : ''}</span>`;
}

/** How long ago, with the moment itself for who asks. */
export function Age({ time, now }) {
  return html`<time datetime=${time} title=${stamp(time)}>${age(time, now)}</time>`;
}

/** How long until a deadline. */
export function Deadline({ time, now, label }) {
  if (!time) return null;
  const near = Date.parse(time) - now < 60_000;
  return html`<span class="deadline ${near ? 'near' : ''}" title=${stamp(time)}>${label} <time datetime=${time}>${until(time, now)}</time></span>`;
}

/** A failure that a page shows in place of what it should show. */
export function Failure({ error, retry }) {
  return html`<div class="notice bad" role="alert">${error} ${retry && html`<button class="link" type="button" onClick=${retry}>Try again</button>`}</div>`;
}

/**
 * A modal dialog. The browser's own keeps the focus inside, closes on Escape, and
 * gives the focus back.
 */
export function Modal({ label, onClose, children }) {
  const ref = useRef();
  useEffect(() => {
    const dialog = ref.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return html`<dialog ref=${ref} aria-label=${label} onClose=${onClose}>${children}</dialog>`;
}
