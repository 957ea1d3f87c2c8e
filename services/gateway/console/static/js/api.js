/**
 * The REST API. Every write carries an Idempotency-Key, so that asking again after
 * a lost answer is safe; every read can wait for what was written before.
 */

/** A refusal of the server: RFC 9457 with our stable code. */
export class Problem extends Error {
  /** @param {number} status @param {object} body the problem+json, or {} where there is none */
  constructor(status, body) {
    super(body.detail || body.title || `The server answered ${status}.`);
    this.name = 'Problem';
    this.status = status;
    this.code = body.code || 'internal';
    this.title = body.title || '';
    this.detail = body.detail || '';
    this.errors = body.errors || [];
    this.phase = body.phase;
    this.allowed = body.allowed;
    this.winner = body.winner;
  }
}

/** No answer came: it is not known whether the request took effect. */
export class Unreachable extends Error {
  constructor(cause) {
    super('The server can’t be reached.', { cause });
    this.name = 'Unreachable';
  }
}

/** Whether the same request may be sent again as it is and may then succeed. */
export function worthRetrying(err) {
  return err instanceof Unreachable || (err instanceof Problem && (err.status >= 500 || err.status === 429));
}

let onUnauthenticated = () => {};

/** Names what to do when the cookie is no longer valid. */
export function whenUnauthenticated(handler) {
  onUnauthenticated = handler;
}

/**
 * The highest sequence that this page wrote or saw. Lists ask for it, so that what was
 * just made, or was shown before, is in them: views may be behind the log.
 */
let seen = 0;
const note = (seq) => { seen = Math.max(seen, Number(seq) || 0); };

/** @returns {string} a fresh key for one intention of the user */
export function newKey() {
  // randomUUID exists only in secure contexts; the console also runs on plain http inside a network.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

/**
 * @param {string} method
 * @param {string} path begins with /v1
 * @param {{body?: object, key?: string, query?: object, signal?: AbortSignal}} [options]
 * @returns {Promise<any>} the decoded body; null where there is none
 */
export async function request(method, path, { body, key, query, signal } = {}) {
  const headers = { Accept: 'application/json' };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (key) headers['Idempotency-Key'] = key;
  let response;
  let text;
  try {
    response = await fetch(path + searchOf(query), {
      method, headers, signal, credentials: 'same-origin', redirect: 'error',
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    text = await response.text();
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw new Unreachable(err);
  }
  const data = parse(text);
  if (!response.ok) {
    const problem = new Problem(response.status, data || {});
    if (problem.status === 401 && path !== '/v1/login') onUnauthenticated();
    throw problem;
  }
  note(response.headers.get('Holdfast-Seq'));
  return data;
}

function searchOf(query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== '') search.append(name, one);
  }
  const text = search.toString();
  return text ? `?${text}` : '';
}

/** What isn't JSON comes from something between us and the server; its status says enough. */
function parse(text) {
  if (!text) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const at = (id) => encodeURIComponent(id);
const list = (path, query, signal) => request('GET', path, { query: { ...query, minSeq: seen || undefined }, signal });

/** The calls that the console makes, by their operationId in openapi.yaml. */
export const api = {
  getMe: () => request('GET', '/v1/me'),
  login: (secret) => request('POST', '/v1/login', { body: secret }),
  logout: () => request('DELETE', '/v1/login'),
  listRuntimes: () => list('/v1/runtimes', { limit: 200 }),
  listSessions: (query, signal) => list('/v1/sessions', query, signal),
  async getSession(id, query, signal) {
    const session = await request('GET', `/v1/sessions/${at(id)}`, { query, signal });
    note(session.seq);
    return session;
  },
  listTimeline: (id, query, signal) => request('GET', `/v1/sessions/${at(id)}/timeline`, { query, signal }),
  createSession: (body, key) => request('POST', '/v1/sessions', { body, key }),
  sendMessage: (id, body, key) => request('POST', `/v1/sessions/${at(id)}/messages`, { body, key }),
  moveSession: (id, move, key, body) => request('POST', `/v1/sessions/${at(id)}/${move}`, { key, body }),
  cancelRun: (id, run, key) => request('POST', `/v1/sessions/${at(id)}/runs/${at(run)}/cancel`, { key }),
  listApprovals: (query, signal) => list('/v1/approvals', query, signal),
  getApproval: (id) => request('GET', `/v1/approvals/${at(id)}`),
  decideApproval: (id, body, key) => request('POST', `/v1/approvals/${at(id)}/decisions`, { body, key }),
  listAudit: (query, signal) => list('/v1/audit', query, signal),
};
