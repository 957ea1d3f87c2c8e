/**
 * A timeline that follows its end while the reader is there, and holds still when the
 * reader looks back; a chip then says what is new below. Only what is in view is drawn.
 */
import { html, useEffect, useMemo, useRef, useState } from '../html.js';
import { count } from '../format.js';
import { matching } from '../timeline-search.js';
import { Revealed } from '../text.js';
import { drawItem } from './items.js';
import { Undrawn, useListWindow } from './list-window.js';

/** About how high each kind of item is before it was drawn, in pixels. */
const HEIGHTS = { line: 28, user: 72, agent: 110, call: 130, gap: 52 };
const estimate = (item) => HEIGHTS[item.kind];

/**
 * @param {{timeline: object, version: number, target?: number, current?: object, watching?: boolean, outgoing?: object[], label?: string}} props
 *   version: changes with the timeline; target: the n of the event that the URL names; current: the item that the
 *   reader is led to, again whenever it is another; watching: nothing can be answered here; outgoing: messages that
 *   are on their way
 */
export function TimelineView({ timeline, version, target, current, watching = false, outgoing = [], label = 'Timeline' }) {
  const [wanted, setWanted] = useState('');
  const all = timeline.items;
  const items = useMemo(() => matching(all, wanted), [all, wanted, wanted && version]);
  const { list, box, parts } = useListWindow(items, estimate, !target);
  const opened = useRef(Date.now());
  const found = useFound(timeline, version, target, list) || current;
  useEffect(() => { if (current) list.show(current); }, [current]);
  if (list.following) opened.current = Date.now();
  const fresh = list.following ? 0 : countSince(items, opened.current);
  const keep = (event) => list.focus(items[event.target.closest('[data-row]')?.dataset.row] || null);
  return html`
    <div class="timeline-box live-state">
      <${Find} wanted=${wanted} onWanted=${setWanted} shown=${items.length} all=${all.length} />
      <div class="timeline" ref=${box} onScroll=${() => list.scrolled()} onFocusIn=${keep} onFocusOut=${() => list.focus(null)}
        tabindex="0" role="feed" aria-label=${label}>
        <div class="timeline-items">
        ${parts.map((part) => (part.item
          ? html`<div class="row-box" key=${part.item.key} data-row=${part.index} role="article" aria-posinset=${part.index + 1} aria-setsize=${items.length}>
            ${drawItem(part.item, part.item === found, watching)}</div>`
          : html`<${Undrawn} key=${part.key} height=${part.gap} />`))}
        ${outgoing.map((m) => html`
          <div class="row-box" role="article" key=${m.key}><div class="item item-user outgoing"><time></time><div>
            <div class="item-head"><b>you</b><span class="tag ${m.state === 'retrying' ? 'wait' : ''}">${m.state === 'retrying' ? 'not sent yet, trying again' : 'sending'}</span></div>
            <div class="said"><${Revealed} text=${m.content} /></div></div></div></div>`)}
        </div>
      </div>
      ${!list.following && html`<button type="button" class="new-below ${fresh ? 'primary' : ''}" onClick=${() => list.toEnd()}>${fresh ? `${count(fresh, 'new item')} below` : 'To the end'}</button>`}
    </div>`;
}

/** The browser's search sees only what is drawn, so the timeline has its own. */
function Find({ wanted, onWanted, shown, all }) {
  return html`
    <div class="find" role="search">
      <label class="unseen" for="find">Find in the timeline</label>
      <input id="find" type="search" value=${wanted} onInput=${(e) => onWanted(e.target.value)} placeholder="Find in the timeline" autocomplete="off" spellcheck="false" />
      <span class="small muted" role="status">${wanted.trim() ? `${shown} of ${count(all, 'item')}` : ''}</span>
    </div>`;
}

/** How many items at the end are newer than the moment at which the reader left it. */
function countSince(items, moment) {
  let n = 0;
  while (n < items.length && Date.parse(items[items.length - 1 - n].time) > moment) n++;
  return n;
}

/** Finds the item of an event and brings it into view, once: afterwards the reader decides. */
function useFound(timeline, version, target, list) {
  const [found, setFound] = useState(null);
  const done = useRef(0);
  useEffect(() => { done.current = 0; setFound(null); }, [target]);
  useEffect(() => {
    if (!target || done.current === target || timeline.n < target) return;
    done.current = target;
    const item = timeline.at(target);
    setFound(item);
    if (item) list.show(item);
  }, [version, target]);
  return found;
}
