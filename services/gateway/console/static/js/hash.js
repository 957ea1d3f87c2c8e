/**
 * Checks in the browser that the arguments shown are those that the hash is over,
 * and so those that an answer binds: the server's word for it is not needed.
 */

/**
 * Canonical JSON (RFC 8785). The RFC takes numbers and strings from ECMAScript, so
 * JSON.stringify is right for both; what is left is the order of members.
 * @returns {string}
 */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  // The default order of sort is that of UTF-16 code units, as the RFC wants it.
  const members = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
  return `{${members.join(',')}}`;
}

const MASK = '‹masked, ';

/**
 * @param {any} args as shown
 * @param {string} argsHash hex SHA-256, with or without its prefix
 * @returns {Promise<'matches'|'differs'|'masked'|'unchecked'>} masked: parts are hidden from
 *   everybody, so nobody can check; unchecked: this browser has no crypto on plain http
 */
export async function checkHash(args, argsHash) {
  const text = canonical(args);
  if (!globalThis.crypto?.subtle) return 'unchecked';
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)));
  const hex = Array.from(digest, (b) => b.toString(16).padStart(2, '0')).join('');
  if (hex === argsHash.replace(/^sha256:/, '')) return 'matches';
  return text.includes(MASK) ? 'masked' : 'differs';
}
