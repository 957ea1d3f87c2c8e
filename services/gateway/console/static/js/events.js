/**
 * One line for each event of the log that has no form of its own in the timeline.
 * An event that this version doesn't know is shown with its type and its data.
 */
import { bytes, clock, shortId, sizeOf, span, who } from './format.js';

/** Nothing to read in these: the timeline shows what they carry elsewhere. */
const SILENT = new Set([
  'session.activity-noted', 'run.message-recorded', 'call.proposed', 'call.decided', 'call.human-confirm-required',
  'call.vote-cast', 'call.approved', 'call.denied', 'call.expired', 'call.cancelled', 'call.superseded', 'call.started',
  'call.delegated', 'call.completed', 'call.lapsed', 'session.message-received',
]);

/** How things are said to look: plain, good, bad, or waiting for somebody. */
const line = (text, tone = 'plain') => ({ text, tone });

const layers = (ms) => (ms && Object.keys(ms).length
  ? ` (${Object.entries(ms).map(([name, t]) => `${name} ${t} ms`).join(', ')})` : '');

const CAUSES = { request: 'asked for', idle: 'idle', waiting: 'only waiting for people', message: 'a message came', answer: 'an answer came', run: 'a run is due' };
const why = (cause) => (cause ? `: ${CAUSES[cause] || cause}` : '');

const LINES = {
  'session.created': (d) => line(`Created from ${d.runtime.name}@${d.runtime.revision}`),
  'session.suspend-requested': (d) => line(`Suspend${why(d.cause)}`),
  'session.resume-requested': (d) => line(`Resume${why(d.cause)}`),
  'session.extended': (d) => line(`Extended${d.maxAt ? ` until ${clock(d.maxAt)}` : ''}${d.idle ? `, idle after ${d.idle}` : ''}`),
  'session.expired': () => line('Reached its maximum age', 'bad'),
  'session.terminated': (d) => line(`Terminated${d.reason ? `: ${d.reason}` : ''}`, 'bad'),
  'session.end-requested': (d) => line(`Ends, ${d.outcome}${d.cause ? `: ${d.cause}` : ''}`, d.outcome === 'failed' ? 'bad' : 'plain'),
  'session.ended': (d) => line(`Ended, ${d.outcome}${d.cause ? `: ${d.cause}` : ''}`, d.outcome === 'failed' ? 'bad' : 'plain'),
  'workload.claim-requested': (d) => line(`Sandbox asked for, generation ${d.generation}`),
  'workload.claimed': (d) => line(`Sandbox claimed, ${d.path}`),
  'workload.ready': (d) => line(`Sandbox ready${layers(d.layersMs)}`, 'good'),
  'workload.suspended': () => line('Sandbox suspended, workspace kept'),
  'workload.resumed': (d) => line(`Sandbox resumed${layers(d.layersMs)}`, 'good'),
  'workload.draining': (d) => line(`Sandbox has to leave its place: ${d.cause}`),
  'workload.stayed': () => line('Sandbox may stay where it is'),
  'workload.lost': (d) => line(`Sandbox lost: ${d.cause}; its workspace is ${d.workspaceKept ? 'kept' : 'gone'}`, 'bad'),
  'workload.failed': (d) => line(`Sandbox failed: ${d.cause}${d.detail ? ` — ${d.detail}` : ''}`, 'bad'),
  'workload.released': () => line('Sandbox released'),
  'run.started': (d) => line(d.parentRunId ? `Run goes on after ${shortId(d.parentRunId)}` : `Run started for ${who(d.requester)}`),
  'run.taken-over': () => line('Run taken over by another runner'),
  'run.cancel-requested': () => line('Run to be cancelled'),
  'run.interrupted': () => line('Run waits for an answer', 'wait'),
  'run.finished': (d) => line(`Run ${d.outcome === 'cancelled' ? 'cancelled' : 'finished'}`),
  'run.failed': (d) => line(`Run failed: ${d.cause}${d.detail ? ` — ${d.detail}` : ''}`, 'bad'),
  'call.answer-refused': (d) => line(`${who(d.by)}’s “${d.decision}” was refused: ${d.code}`, 'bad'),
};

/**
 * @param {object} event data of an event frame
 * @returns {{text: string, tone: string, data?: object}|null} null for what is shown elsewhere
 */
export function lineOf(event) {
  if (SILENT.has(event.type)) return null;
  const words = LINES[event.type];
  return words ? words(event.data) : { ...line(event.type), data: event.data };
}

const GAPS = {
  expired: 'Output before this has aged out and is gone; the messages and calls are still here.',
  epoch: 'The log is another one than before. What follows is the new one.',
  overflow: 'This viewer was too slow. What is missing can be read again by reloading.',
  unavailable: 'The history can’t be read just now. Reload later to see what is missing.',
};

/** @param {object} control data of a gap frame @returns {string} */
export const gapOf = (control) => GAPS[control.reason] || 'Frames are missing here.';

/** One line for an AG-UI event that is neither text nor a call; null for what says nothing to people. */
export function aguiLineOf(event) {
  switch (event.type) {
    case 'RUN_STARTED': case 'RUN_FINISHED': // the log has its own word for these
    case 'STATE_SNAPSHOT': case 'STATE_DELTA': case 'MESSAGES_SNAPSHOT': case 'STEP_FINISHED':
      return null;
    case 'RUN_ERROR': return line(`The agent ended with an error: ${event.message}`, 'bad');
    case 'STEP_STARTED': return line(`Step: ${event.stepName}`);
    default: return { ...line(event.type), data: event };
  }
}

/** @returns {string} lines and bytes of a text, so that its length can't hide */
export function extent(text) {
  const lines = text.split('\n').length;
  return `${lines > 1 ? `${lines} lines, ` : ''}${bytes(sizeOf(text))}`;
}

/** @returns {string} how long something took, where both ends are known */
export function took(from, to) {
  if (!from || !to) return '';
  const ms = Date.parse(to) - Date.parse(from);
  return ms < 1_000 ? `${ms} ms` : span(ms);
}
