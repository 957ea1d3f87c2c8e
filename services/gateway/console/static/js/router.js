/**
 * Pages are fragments of the URL: a link can be shared and opened, and the server
 * has to know one path only. Filters live in the fragment too, so that "back"
 * undoes them.
 */
import { useEffect, useState } from './html.js';

/**
 * @typedef {{path: string[], query: URLSearchParams}} Route
 * @returns {Route} where the address bar points
 */
export function currentRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  return { path: path.split('/').filter(Boolean).map(decode), query: new URLSearchParams(query || '') };
}

/** A fragment that was typed by hand may be no valid encoding; then it is what it says. */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * @param {string[]} path parts of the path
 * @param {Record<string, string|string[]|undefined>} [query] empty values are left out
 * @returns {string} the link
 */
export function linkTo(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== undefined && one !== '') search.append(name, one);
  }
  const text = search.toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

/** Goes to a link. With replace the page before is not kept in the history. */
export function go(link, replace = false) {
  if (!replace) {
    location.hash = link;
    return;
  }
  history.replaceState(null, '', link);
  dispatchEvent(new HashChangeEvent('hashchange'));
}

/** @returns {Route} the route, again whenever it changes */
export function useRoute() {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const changed = () => setRoute(currentRoute());
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return route;
}
