/**
 * What phases look like, and which moves each allows. The table is the one of
 * events/session (Moves); the server has the last word and its 409 says so.
 */
export const PHASES = ['pending', 'claimed', 'ready', 'suspending', 'suspended', 'resuming', 'ending', 'ended'];
/** The phases of a session that isn't over. */
export const LIVING = PHASES.slice(0, 6);

const LOOKS = {
  pending: 'moving', claimed: 'moving', ready: 'good', suspending: 'moving', suspended: 'hollow', resuming: 'moving',
  ending: 'moving', ended: '',
};

/** @param {object} session @returns {string} the class of its phase */
export const phaseLook = ({ phase, outcome }) => (outcome === 'failed' ? 'bad' : LOOKS[phase] ?? '');

const MOVES = {
  pending: ['message', 'terminate'],
  claimed: ['message', 'terminate'],
  ready: ['message', 'suspend', 'terminate'],
  suspending: ['message', 'resume', 'terminate'],
  suspended: ['message', 'resume', 'terminate'],
  resuming: ['message', 'terminate'],
  ending: [],
  ended: [],
};

/** @returns {boolean} whether the move is legal in the phase */
export const allows = (phase, move) => Boolean(MOVES[phase]?.includes(move));

/** How the state of a call is said, and how it looks. */
const CALLS = {
  saying: ['being asked', ''], proposed: ['proposed', ''], allowed: ['allowed by policy', 'good'], denied: ['denied', 'bad'],
  pending: ['waits for an answer', 'wait'], approved: ['approved', 'good'], started: ['running', 'good'], completed: ['completed', ''],
  expired: ['expired', 'bad'], cancelled: ['cancelled', ''], superseded: ['superseded', ''], lapsed: ['lapsed', 'bad'],
};

/** @returns {[string, string]} words and class */
export const callLook = (state) => CALLS[state] || [state, ''];
