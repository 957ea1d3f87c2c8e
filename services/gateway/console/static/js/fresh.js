/**
 * Events arrive before the views that are made of them: the stream comes from the log,
 * sessions are read from Postgres. Whoever reads a session because of an event reads on
 * until the event is in it, or would show what was before, until the next event.
 */
import { api } from './api.js';

/** The first pause before reading again, doubled up to the last. */
const FIRST = 150;
const LAST = 3_000;

/**
 * Reads a session until it is as of event n or later.
 * @param {string} id @param {number} n 0 for however it is
 * @param {(session: object) => void} take gets what was read, each time
 * @param {AbortSignal} signal nothing is read or taken once it is aborted
 */
export async function readUpTo(id, n, take, signal) {
  for (let pause = FIRST; ; pause = Math.min(LAST, pause * 2)) {
    const session = await api.getSession(id, {}, signal);
    if (signal.aborted) return;
    take(session);
    if (session.n >= n) return;
    await new Promise((resolve) => { setTimeout(resolve, pause); });
    if (signal.aborted) return;
  }
}
