/**
 * Plays a tape: holds the place, folds the timeline as it was there, and moves on at
 * the pace of what happened, or faster. It decides nothing and asks for nothing: what
 * it shows is on the tape.
 */
import { Timeline } from './timeline.js';

/** How many times as fast; people choose. */
export const SPEEDS = [1, 2, 10, 60];
/** No pause is played longer than this, in milliseconds, whatever the speed. */
export const LONGEST = 3_000;

export class Player {
  /** @param {import('./tape.js').Tape} tape @param {() => void} onChange the place, or whether it plays, is another */
  constructor(tape, onChange) {
    Object.assign(this, { tape, onChange, place: 0, playing: false, speed: 1, timeline: new Timeline(), taken: 0 });
    /** the pause that is being shortened, in milliseconds of what it really was; 0 in none */
    this.shortened = 0;
  }

  stop() {
    clearTimeout(this.timer);
    this.playing = false;
  }

  /** Goes to a place; the timeline is folded on from here, or again from the beginning. */
  seek(place) {
    this.place = Math.max(0, Math.min(this.tape.length, place));
    if (this.place < this.taken) Object.assign(this, { timeline: new Timeline(), taken: 0 });
    while (this.taken < this.place) this.timeline.take(this.tape.frames[this.taken++]);
    if (this.playing) this.schedule();
    this.onChange();
  }

  step(by) {
    this.pause();
    this.seek(this.place + by);
  }

  /** Plays on; from the end, from the beginning. */
  play() {
    if (this.tape.whole && this.place >= this.tape.length) this.seek(1);
    this.playing = true;
    this.schedule();
    this.onChange();
  }

  pause() {
    clearTimeout(this.timer);
    Object.assign(this, { playing: false, shortened: 0 });
    this.onChange();
  }

  pace(speed) {
    this.speed = speed;
    if (this.playing) this.schedule();
    this.onChange();
  }

  /** More was read: whoever waits at the end of it goes on. */
  more() {
    if (this.playing && !this.timer) this.schedule();
  }

  wait() {
    const real = this.tape.gapAfter(this.place);
    const played = real / this.speed;
    this.shortened = played > LONGEST ? real : 0;
    return Math.min(played, LONGEST);
  }

  schedule() {
    clearTimeout(this.timer);
    this.timer = 0;
    if (this.place >= this.tape.length) return;
    const wait = this.wait();
    this.due = performance.now() + wait;
    this.timer = setTimeout(() => this.tick(), wait);
  }

  /** Takes all frames that are due: many can be between two drawings. */
  tick() {
    this.timer = 0;
    const now = performance.now();
    let { place } = this;
    while (place < this.tape.length && this.due <= now) {
      this.place = ++place;
      this.due += this.wait();
    }
    const playing = place < this.tape.length || !this.tape.whole;
    this.playing = false; // seek plans nothing: what comes next is due at a time that is known already
    this.seek(place);
    this.playing = playing;
    if (playing && place < this.tape.length) this.timer = setTimeout(() => this.tick(), Math.max(0, this.due - performance.now()));
    if (!playing) this.shortened = 0;
    this.onChange();
  }
}
