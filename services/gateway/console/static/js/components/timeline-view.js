/**
 * A timeline that follows its end while the reader is there, and holds still when the
 * reader looks back; a chip then says what is new below.
 */
import { html, useEffect, useLayoutEffect, useRef, useState } from '../html.js';
import { count } from '../format.js';
import { drawItem } from './items.js';

/** This many items are drawn; earlier ones on demand. */
const WINDOW = 300;
/** This close to the end counts as being there. */
const NEAR = 48;

/**
 * @param {{timeline: object, version: number, target?: number, watching?: boolean, outgoing?: object[]}} props
 *   version: changes with the timeline; target: the n of the event that the URL names;
 *   outgoing: messages that are on their way
 */
export function TimelineView({ timeline, version, target, watching = false, outgoing = [], label = 'Timeline' }) {
  const box = useRef();
  const following = useRef(!target);
  const [drawnFrom, setDrawnFrom] = useState(0);
  const [atEnd, setAtEnd] = useState(!target);
  const opened = useRef(Date.now());
  const found = useFound(timeline, version, target, box);
  const { items } = timeline;
  const foundAt = found ? items.indexOf(found) : items.length;
  const from = Math.max(0, Math.min(items.length - WINDOW - drawnFrom, foundAt - 20));

  const follow = () => { if (following.current && box.current) box.current.scrollTop = box.current.scrollHeight; };
  useLayoutEffect(follow, [version, outgoing.length]);
  useGrowth(box, follow);

  function scrolled() {
    if (!box.current) return; // the event may come after the page was left
    const { scrollHeight, scrollTop, clientHeight } = box.current;
    following.current = scrollHeight - scrollTop - clientHeight < NEAR;
    if (following.current) opened.current = Date.now();
    setAtEnd(following.current);
  }
  function earlier() {
    following.current = false;
    setDrawnFrom(drawnFrom + WINDOW);
  }
  function toEnd() {
    box.current.scrollTop = box.current.scrollHeight;
    scrolled();
  }
  const fresh = atEnd ? 0 : countSince(items, opened.current);
  return html`
    <div class="timeline-box live-state">
      <div class="timeline" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-live="off" aria-label=${label}>
        <div class="timeline-items">
        ${from > 0 && html`<div class="more"><button type="button" onClick=${earlier}>Earlier: ${from} more</button></div>`}
        ${items.slice(from).map((item) => drawItem(item, item === found, watching))}
        ${outgoing.map((m) => html`
          <div class="item item-user outgoing" key=${m.key}><time></time><div>
            <div class="item-head"><b>you</b><span class="tag ${m.state === 'retrying' ? 'wait' : ''}">${m.state === 'retrying' ? 'not sent yet, trying again' : 'sending'}</span></div>
            <div class="said">${m.content}</div></div></div>`)}
        </div>
      </div>
      ${!atEnd && html`<button type="button" class="new-below ${fresh ? 'primary' : ''}" onClick=${toEnd}>${fresh ? `${count(fresh, 'new item')} below` : 'To the end'}</button>`}
    </div>`;
}

/** Items grow by themselves, and a phone is turned: who was at the end stays there. */
function useGrowth(box, grown) {
  useEffect(() => {
    const observer = new ResizeObserver(grown);
    observer.observe(box.current);
    observer.observe(box.current.firstElementChild);
    return () => observer.disconnect();
  }, []);
}

/** How many items at the end are newer than the moment at which the reader left it. */
function countSince(items, moment) {
  let n = 0;
  while (n < items.length && Date.parse(items[items.length - 1 - n].time) > moment) n++;
  return n;
}

/** Finds the item of an event and scrolls to it, once: afterwards the reader decides. */
function useFound(timeline, version, target, box) {
  const [found, setFound] = useState(null);
  const done = useRef(0);
  useEffect(() => { done.current = 0; setFound(null); }, [target]);
  useEffect(() => {
    if (!target || done.current === target || timeline.n < target) return;
    done.current = target;
    setFound(timeline.at(target));
  }, [version, target]);
  useLayoutEffect(() => { if (found) box.current.querySelector('.found')?.scrollIntoView({ block: 'center' }); }, [found]);
  return found;
}
