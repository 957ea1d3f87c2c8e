/**
 * Checks in the browser that the arguments shown are those that the hash is over,
 * and so those that an answer binds: the server's word for it is not needed.
 */

import { canonical } from './json.js';

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
