/**
 * Finds items of a timeline by what they say. The browser's own search sees only what
 * is drawn, and of a long timeline that is a part.
 */

/** What an item says, in lower case, by the revision that it was taken from. */
const said = new WeakMap();

function sayings(item) {
  const before = said.get(item);
  if (before?.rev === item.rev) return before.text;
  const parts = [item.text, item.tool, item.said, item.output, item.answer, item.failure, item.note, item.by, item.actor, item.type,
    item.callId, item.run, item.decided?.rule, item.decided?.reason, item.approval?.decision?.reason, item.approval?.decision?.by,
    ...(item.pieces ? [item.pieces.join('')] : []), ...leaves(item.args)];
  const text = parts.filter((p) => typeof p === 'string').join('\n').toLowerCase();
  said.set(item, { rev: item.rev, text });
  return text;
}

/** The names and texts in a value of whatever depth, without recursion: agents choose the depth. */
function leaves(value) {
  const found = [];
  const open = [value];
  while (open.length) {
    const next = open.pop();
    if (next !== null && typeof next === 'object') {
      if (!Array.isArray(next)) for (const name of Object.keys(next)) found.push(name);
      for (const part of Object.values(next)) open.push(part);
    } else if (next !== undefined) {
      found.push(String(next));
    }
  }
  return found;
}

/**
 * @param {object[]} items @param {string} wanted words as typed
 * @returns {object[]} those that say all of it, in order; the same array where nothing is wanted
 */
export function matching(items, wanted) {
  const text = wanted.trim().toLowerCase();
  return text ? items.filter((item) => sayings(item).includes(text)) : items;
}
