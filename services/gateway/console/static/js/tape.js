/**
 * The whole history of a session for a replay: read once, page by page, and kept. A
 * place on the tape is the number of frames that have happened by then, so 0 is before
 * everything. A moment is named by people, and by links, as an event's n and how many
 * frames after it: what the agent said between two events has no n of its own.
 */
import { api, worthRetrying } from './api.js';
import { explain } from './format.js';

/** Frames in a page: the most that the API gives. */
const PAGE = 200;
/** A page that got no answer is asked for again after this long, in milliseconds. */
const AGAIN = 1_500;

export class Tape {
  /** @param {string} id the session's @param {() => void} onChange more was read, or reading failed */
  constructor(id, onChange) {
    Object.assign(this, { id, onChange, frames: [], error: '', whole: false });
    /** by n, the place after its event */
    this.places = new Map();
    this.cancelled = new AbortController();
  }

  /** Reads from where it stands to what is the end now; a live session's end moves on. */
  async read() {
    this.whole = false;
    let minSeq;
    while (!this.cancelled.signal.aborted) {
      try {
        // What the log holds now may not have come to the views yet.
        minSeq ??= (await api.getSession(this.id, {}, this.cancelled.signal)).seq;
        const page = await api.listTimeline(this.id, { limit: PAGE, after: this.cursor, minSeq }, this.cancelled.signal);
        this.take(page.items);
        this.error = '';
        this.whole = !page.next;
        this.onChange();
        if (this.whole) return;
      } catch (err) {
        if (this.cancelled.signal.aborted) return;
        this.error = explain(err);
        this.onChange();
        if (!worthRetrying(err)) return;
        await new Promise((done) => { setTimeout(done, AGAIN); });
      }
    }
  }

  take(frames) {
    for (const frame of frames) {
      this.frames.push(frame);
      this.cursor = frame.cursor;
      if (frame.kind === 'event' || frame.kind === 'prompt') this.places.set(frame.n, this.frames.length);
    }
  }

  stop() {
    this.cancelled.abort();
  }

  get length() {
    return this.frames.length;
  }

  /** @returns {{n: number, k: number}} the name of a place */
  momentAt(place) {
    const n = this.nAt(place);
    return { n, k: place - (this.places.get(n) ?? 0) };
  }

  /** @returns {number} the n as of a place, 0 before the first event */
  nAt(place) {
    for (let i = place - 1; i >= 0; i--) if (this.frames[i].kind !== 'control') return this.frames[i].n;
    return 0;
  }

  /** @returns {number|undefined} the place that has a name; undefined while it wasn't read, or where there is none */
  placeOf({ n, k = 0 }) {
    const place = this.places.get(n);
    if (place === undefined) return undefined;
    // Only what stands before the next event is after this one.
    const next = this.places.get(n + 1);
    const last = next === undefined ? this.length : next - 1;
    return place + k <= last ? place + k : next === undefined && !this.whole ? undefined : last;
  }

  /** @returns {string|undefined} when a place was reached */
  timeAt(place) {
    for (let i = place - 1; i >= 0; i--) if (this.frames[i].kind !== 'control') return this.frames[i].time;
    return undefined;
  }

  /** @returns {number} milliseconds between the frame before a place and the one behind it */
  gapAfter(place) {
    if (place < 1 || place >= this.length || this.frames[place].kind === 'control') return 0;
    return Math.max(0, Date.parse(this.frames[place].time) - Date.parse(this.timeAt(place) ?? this.frames[place].time));
  }
}
