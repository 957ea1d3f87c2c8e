/**
 * JSON of values whose depth agents choose: nothing here recurses, so that no depth
 * ends in an overflow, and what is indented can't grow without bounds.
 */

/** Deeper than this a value is written on one line: each level would indent all that is in it. */
const DEEPEST = 24;

/**
 * Canonical JSON (RFC 8785). The RFC takes numbers and strings from ECMAScript, so
 * JSON.stringify is right for both; what is left is the order of members.
 * @returns {string}
 */
export function canonical(value) {
  const out = [];
  /** What is still to be written, the next one last: a value, or text that stands between values. */
  const open = [{ value }];
  while (open.length) {
    const next = open.pop();
    if (next.text !== undefined) out.push(next.text);
    else if (next.value === null || typeof next.value !== 'object') out.push(JSON.stringify(next.value) ?? 'null');
    else writeMembers(next.value, out, open);
  }
  return out.join('');
}

function writeMembers(value, out, open) {
  const list = Array.isArray(value);
  // The default order of sort is that of UTF-16 code units, as the RFC wants it.
  const names = list ? Array.from(value.keys()) : Object.keys(value).sort();
  out.push(list ? '[' : '{');
  open.push({ text: list ? ']' : '}' });
  for (let i = names.length - 1; i >= 0; i--) {
    open.push({ value: value[names[i]] });
    const comma = i ? ',' : '';
    if (!list) open.push({ text: `${comma}${JSON.stringify(names[i])}:` });
    else if (comma) open.push({ text: comma });
  }
}

/** @returns {string} indented where that stays readable, else as canonical */
export function readable(value) {
  return deeperThan(value, DEEPEST) ? canonical(value) : JSON.stringify(value, null, 2) ?? '';
}

function deeperThan(value, most) {
  const open = [{ value, depth: 0 }];
  while (open.length) {
    const { value: at, depth } = open.pop();
    if (at === null || typeof at !== 'object') continue;
    if (depth >= most) return true;
    for (const part of Object.values(at)) open.push({ value: part, depth: depth + 1 });
  }
  return false;
}
