/** Words for times, sizes, principals and problems. Pure functions of what they are given. */
import { Problem } from './api.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** @param {number} ms a length of time; @returns {string} its two largest parts, as "4 min 12 s" */
export function span(ms) {
  const left = Math.max(0, Math.round(ms / SECOND) * SECOND);
  if (left < MINUTE) return `${left / SECOND} s`;
  if (left < HOUR) return pair(left, MINUTE, 'min', SECOND, 's');
  if (left < DAY) return pair(left, HOUR, 'h', MINUTE, 'min');
  return pair(left, DAY, 'd', HOUR, 'h');
}

function pair(ms, big, bigName, small, smallName) {
  const rest = Math.floor((ms % big) / small);
  return `${Math.floor(ms / big)} ${bigName}${rest ? ` ${rest} ${smallName}` : ''}`;
}

/** @returns {string} the largest part only: ages in a list need no seconds */
export function age(time, now) {
  const ms = Math.max(0, now - Date.parse(time));
  return span(ms).split(' ').slice(0, 2).join(' ');
}

const two = (n) => String(n).padStart(2, '0');

/** @returns {string} local time of day, 24 hours, to the second */
export function clock(time) {
  const d = new Date(time);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** @returns {string} local date and time, in an order that sorts */
export function stamp(time) {
  const d = new Date(time);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(d)}`;
}

/** @returns {string} time of day, with the date where it is not today's */
export function when(time, now = Date.now()) {
  return new Date(time).toDateString() === new Date(now).toDateString() ? clock(time) : stamp(time);
}

/** @param {number} n bytes */
export function bytes(n) {
  if (n < 1000) return `${n} B`;
  if (n < 1e6) return `${(n / 1e3).toFixed(1)} kB`;
  return `${(n / 1e6).toFixed(1)} MB`;
}

/** @returns {number} bytes of the text in UTF-8 */
export const sizeOf = (text) => new TextEncoder().encode(text).length;

/** @returns {string} a count with its word: "1 question", "2 questions" */
export const count = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;

/** @returns {string} a person by name alone; agents and services say what they are */
export function who(principal = '') {
  const [kind, ...rest] = principal.split(':');
  const name = rest.join(':');
  if (kind === 'user') return name;
  if (kind === 'service') return `${name} service`;
  if (kind === 'agent') return 'the agent';
  return principal;
}

/** @returns {string} enough of an id to tell it from others on the page; links carry all of it */
export function shortId(id) {
  return id.length > 12 ? `${id.slice(0, 10)}…` : id;
}

const PAST = { approve: 'approved', deny: 'denied' };

const SENTENCES = {
  'approval-expired': () => 'Too late: the deadline to answer has passed. Nothing was changed.',
  'args-changed': () => 'These are not the arguments that the call has now. Nothing was changed; reload and read again.',
  'not-an-approver': () => 'The rule names others as approvers. Your answer was refused, and the refusal recorded.',
  'requester-excluded': () => 'You wrote to this run, so the rule doesn’t let you answer for it. The refusal was recorded.',
  'already-decided': ({ winner }) => (winner
    ? `${who(winner.by)} already ${PAST[winner.decision] || 'settled this'} at ${when(winner.at)}.${winner.reason ? ` “${winner.reason}”` : ''}`
    : 'This was answered before.'),
  'illegal-transition': ({ phase, allowed }) =>
    `Not possible while the session is ${phase}.${allowed?.length ? ` Possible now: ${allowed.join(', ')}.` : ''}`,
  'session-in-use': () => 'The session is in use: a run, a stream or a call is open.',
  'session-ended': () => 'The session is ending or has ended and takes nothing more.',
  'run-busy': () => 'A run is open, and you asked not to wait for it.',
  'outcome-unknown': () => 'It may or may not have taken effect. Asking again is safe.',
};

/** @param {Error} err @returns {string} what happened, for the person who asked for it */
export function explain(err) {
  if (!(err instanceof Problem)) return err.message;
  const sentence = SENTENCES[err.code]?.(err) || err.detail || err.title || err.message;
  const places = err.errors.map((e) => `${e.pointer}: ${e.detail}`);
  return places.length ? `${sentence} ${places.join('; ')}` : sentence;
}
