/**
 * Draws of a long list only what is in view: ten thousand rows are some dozens in the
 * document. Rows have heights of their own, known only once they are drawn; until then
 * they are estimated, and whatever turns out otherwise moves nothing that is being read.
 *
 *   following ──reader moves up──▶ anchored (the first row in view stays where it is)
 *       ▲                             │
 *       └──reader comes to the end────┘        show(item): until it is where it should be
 */
import { html, useEffect, useLayoutEffect, useRef, useState } from '../html.js';

/** This many pixels are drawn beyond each edge, so that scrolling meets no emptiness. */
const BEYOND = 800;
/** So many rows on each side of the one with the focus are drawn, wherever the view is: Tab finds what is next only there. */
const BESIDE = 8;
/** This close to the end counts as being there. */
const NEAR = 48;
/** The height that a window has before it is in the document. */
const UNSEEN = 900;

export class ListWindow {
  /**
   * @param {(item: object) => number} estimate pixels of a row that was never drawn
   * @param {boolean} following whether it begins at its end
   */
  constructor(estimate, following) {
    Object.assign(this, { estimate, following, redraw: () => {}, items: [], box: null, top: 0 });
    /** heights by the items' keys: a list that is made anew keeps them */
    this.heights = new Map();
    /** tops[i] is where row i begins, tops[length] where the list ends; right up to the index `sure` */
    this.tops = [0];
    this.sure = 0;
    this.drawn = { from: 0, to: 0 };
    /** the first row in view and where its top is in it; the row to bring into view; the one with the focus */
    this.anchor = this.goal = this.focused = null;
  }

  /**
   * What to draw of the items now, in order.
   * @returns {Array<{item: object, index: number}|{gap: number, key: string}>} rows, and gaps in pixels between them
   */
  plan(items) {
    this.layOut(items);
    const height = this.box?.clientHeight || UNSEEN;
    const { from, to } = this.drawn = this.range(this.aim(height), height);
    const rows = new Set();
    const kept = this.focused ? items.indexOf(this.focused) : -1;
    const beside = kept < 0 ? { from: 0, to: 0 } : { from: Math.max(0, kept - BESIDE), to: Math.min(items.length, kept + BESIDE + 1) };
    for (const part of beside.from < from ? [beside, { from, to }] : [{ from, to }, beside]) {
      for (let i = part.from; i < part.to; i++) rows.add(i);
    }
    const parts = [];
    let end = 0;
    for (const index of rows) {
      if (index > end) parts.push({ key: `gap:${parts.length ? 'in' : 'before'}`, gap: this.tops[index] - this.tops[end] });
      parts.push({ item: items[index], index });
      end = index + 1;
    }
    if (end < items.length) parts.push({ key: 'gap:after', gap: this.tops[items.length] - this.tops[end] });
    return parts;
  }

  layOut(items) {
    if (items !== this.items) this.sure = 0;
    this.items = items;
    const { tops, heights } = this;
    for (let i = Math.min(this.sure, items.length); i < items.length; i++) {
      tops[i + 1] = tops[i] + (heights.get(items[i].key) ?? this.estimate(items[i]));
    }
    this.sure = items.length;
    tops.length = items.length + 1;
  }

  /** Where the view is, or is on its way to. */
  aim(height) {
    const end = Math.max(0, this.tops[this.items.length] - height);
    if (this.following) return end;
    const index = this.goal ? this.items.indexOf(this.goal) : -1;
    if (index >= 0) return Math.min(end, Math.max(0, (this.tops[index] + this.tops[index + 1] - height) / 2));
    return Math.min(end, this.top);
  }

  range(top, height) {
    return { from: this.rowAt(top - BEYOND), to: Math.min(this.items.length, this.rowAt(top + height + BEYOND) + 1) };
  }

  /** The row that covers a height, by halving. */
  rowAt(y) {
    let low = 0;
    let high = Math.max(0, this.items.length - 1);
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** The focus came to an item, or left the list (null). */
  focus(item) {
    this.focused = item;
    if (item) this.redraw();
  }

  /** After each drawing: learns the heights, puts the view where it belongs, and draws again where that showed more. */
  settle() {
    const { box } = this;
    if (!box) return;
    let learnt = false;
    const view = box.getBoundingClientRect();
    const rows = this.rows();
    for (const row of rows) {
      const index = Number(row.dataset.row);
      const item = this.items[index];
      if (!item) continue;
      const { height } = row.getBoundingClientRect();
      if (Math.abs((this.heights.get(item.key) ?? -1) - height) < 0.5) continue;
      this.heights.set(item.key, height);
      this.sure = Math.min(this.sure, index);
      learnt = true;
    }
    this.place(rows, view, learnt);
    this.top = box.scrollTop;
    if (learnt || !this.covers()) this.redraw();
  }

  place(rows, view, learnt) {
    const { box } = this;
    const of = (item) => item && rows.find((row) => this.items[row.dataset.row]?.key === item.key)?.getBoundingClientRect();
    if (this.following) {
      box.scrollTop = box.scrollHeight;
      return;
    }
    if (this.goal) {
      const at = of(this.goal);
      if (at) box.scrollTop += at.top - view.top - Math.max(0, (view.height - at.height) / 2);
      else box.scrollTop = this.aim(view.height);
      if (at && !learnt) this.arrived();
      this.note();
      return;
    }
    const at = of(this.anchor?.item);
    const moved = at ? at.top - view.top - this.anchor.at : 0;
    if (Math.abs(moved) >= 1) box.scrollTop += moved;
  }

  /** What was to be shown is in view. Where that is the end, the end is followed again. */
  arrived() {
    this.goal = null;
    if (!this.atEnd()) return;
    this.following = true;
    this.redraw();
  }

  atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.box;
    return scrollHeight - scrollTop - clientHeight < NEAR;
  }

  rows() {
    return [...this.box.querySelectorAll(':scope > * > [data-row]')];
  }

  /** Notes which row is the first in view, and where. */
  note() {
    const { top } = this.box.getBoundingClientRect();
    const first = this.rows().find((row) => row.getBoundingClientRect().bottom > top);
    this.anchor = first ? { item: this.items[first.dataset.row], at: first.getBoundingClientRect().top - top } : null;
  }

  /** Whether what is drawn reaches far enough beyond the view. */
  covers() {
    const { scrollTop, clientHeight } = this.box;
    return this.rowAt(scrollTop - BEYOND / 2) >= this.drawn.from
      && this.rowAt(scrollTop + clientHeight + BEYOND / 2) < Math.max(1, this.drawn.to);
  }

  /** The reader, or we, moved the view. Only moving up leaves the end: growing does not. */
  scrolled() {
    const { box } = this;
    if (!box) return; // the event may come after the page was left
    const before = this.following;
    const up = box.scrollTop < this.top - 1;
    this.top = box.scrollTop;
    if (this.atEnd() && !this.goal) this.following = true;
    else if (up) this.following = false;
    if (!this.following) this.note();
    if (before !== this.following || !this.covers()) this.redraw();
  }

  toEnd() {
    Object.assign(this, { following: true, goal: null });
    this.redraw();
  }

  /** Brings an item into the middle of the view; the end is left. */
  show(item) {
    Object.assign(this, { following: false, goal: item });
    this.redraw();
  }
}

/**
 * @param {object[]} items each with a `key`; the same array may grow
 * @param {(item: object) => number} estimate @param {boolean} following whether it begins at its end
 * @returns {{list: ListWindow, box: object, parts: object[]}} box: the ref of what scrolls, whose only child holds
 *   the parts, rows with their index in data-row
 */
export function useListWindow(items, estimate, following) {
  const box = useRef();
  const [, redraw] = useState(0);
  const [list] = useState(() => new ListWindow(estimate, following));
  list.redraw = () => redraw((n) => n + 1);
  useLayoutEffect(() => {
    list.box = box.current;
    list.settle();
  });
  useEffect(() => {
    // Rows grow by themselves, and a phone is turned.
    const observer = new ResizeObserver(() => list.settle());
    observer.observe(box.current);
    observer.observe(box.current.firstElementChild);
    return () => { observer.disconnect(); list.box = null; };
  }, []);
  return { list, box, parts: list.plan(items) };
}

/** Rows that aren't drawn, as the height that they have. */
export function Undrawn({ height }) {
  const box = useRef();
  useLayoutEffect(() => { box.current.style.height = `${height}px`; }, [height]);
  return html`<div ref=${box} aria-hidden="true"></div>`;
}
