/**
 * One WebSocket for everything that is live. Each subscription remembers the cursor
 * of the last frame it handed on and goes on from there after a reconnect: no gap,
 * no repeat. Whoever uses it learns how the connection is, and never reconnects.
 *
 *   connecting ──open──▶ live ──close, silence──▶ lost ──jittered wait──▶ connecting
 *                                └─ a code that says not to come back ──▶ refused
 */

/** A socket that says nothing is asked after this long, and given up after the second. */
const ASK_AFTER = 20_000;
const GIVE_UP_AFTER = 35_000;
/** Waits between attempts double from the first to the last of these, half of each at random. */
const FIRST_WAIT = 400;
const LAST_WAIT = 15_000;

/** Close codes of asyncapi.yaml: from here on, the same again would end the same. */
const STAY_AWAY = 4500;
const UNAUTHENTICATED = 4501;

/**
 * @typedef {object} Subscription
 * @property {object} target {session} or {inbox: true}
 * @property {string} [cursor] the last frame's
 * @property {(frame: object) => void} onFrame
 * @property {(problem: object) => void} [onProblem] it can't be followed, and why
 * @property {() => void} [onBegin] it is followed, and not from a cursor: what was known may be old
 */

export class Stream {
  /**
   * @param {string} url of the WebSocket
   * @param {(status: {state: string, since: number, heard: number, attempts?: number, retryAt?: number}) => void} onStatus
   * @param {() => void} onUnauthenticated the cookie is no longer valid
   */
  constructor(url, onStatus, onUnauthenticated) {
    Object.assign(this, { url, onStatus, onUnauthenticated });
    /** @type {Map<string, Subscription>} by the ref that we gave it */
    this.wanted = new Map();
    this.byName = new Map();
    this.nextRef = 1;
    this.attempt = 0;
    this.status = { state: 'connecting', since: Date.now(), heard: 0 };
    this.retryNow = () => { if (this.status.state === 'lost') this.connect(); };
    this.seen = () => { if (document.visibilityState === 'visible') this.retryNow(); };
  }

  start() {
    addEventListener('online', this.retryNow);
    document.addEventListener('visibilitychange', this.seen);
    this.watch = setInterval(() => this.checkPulse(), 5_000);
    this.connect();
  }

  stop() {
    removeEventListener('online', this.retryNow);
    document.removeEventListener('visibilitychange', this.seen);
    clearInterval(this.watch);
    clearTimeout(this.timer);
    this.drop();
    this.stopped = true;
  }

  /**
   * Follows a session or the inbox.
   * @param {Subscription} subscription cursor says where to go on; without it a session comes from
   *   its beginning, the inbox from now
   * @returns {() => void} what ends it
   */
  subscribe(subscription) {
    const ref = String(this.nextRef++);
    this.wanted.set(ref, subscription);
    if (this.status.state === 'live') this.ask(ref);
    return () => {
      this.wanted.delete(ref);
      for (const [name, of] of this.byName) {
        if (of !== ref) continue;
        this.byName.delete(name);
        this.send({ type: 'unsubscribe', ref: `u${ref}`, subscription: name });
      }
    };
  }

  connect() {
    if (this.stopped) return;
    clearTimeout(this.timer);
    this.drop();
    this.report('connecting');
    const socket = new WebSocket(this.url);
    this.socket = socket;
    socket.onopen = () => {
      this.attempt = 0;
      this.heard();
      this.report('live');
      for (const ref of this.wanted.keys()) this.ask(ref);
    };
    socket.onmessage = (event) => {
      this.heard();
      this.receive(JSON.parse(event.data));
    };
    socket.onclose = (event) => this.lost(event.code);
    // An attempt that hangs is as good as a refused one.
    this.timer = setTimeout(() => { if (socket.readyState === WebSocket.CONNECTING) this.lost(0); }, 10_000);
  }

  receive(message) {
    switch (message.type) {
      case 'frame': return this.frame(message);
      case 'subscribed':
        // It may have been given up while the answer was on its way.
        if (this.wanted.has(message.ref)) this.begin(message);
        else this.send({ type: 'unsubscribe', ref: `u${message.ref}`, subscription: message.subscription });
        return undefined;
      case 'problem': return this.refused(message);
      default: return undefined; // heartbeats and pongs have done their work by coming
    }
  }

  begin({ ref, subscription: name }) {
    this.byName.set(name, ref);
    const { cursor, onBegin } = this.wanted.get(ref);
    if (!cursor) onBegin?.();
  }

  frame({ subscription: name, frame }) {
    const subscription = this.wanted.get(this.byName.get(name));
    if (!subscription) return;
    subscription.onFrame(frame);
    // Only now: a frame that was not taken in must come again.
    subscription.cursor = frame.cursor;
  }

  refused({ ref, problem }) {
    const subscription = this.wanted.get(ref);
    if (!subscription) return;
    if (problem.code === 'unauthenticated') {
      this.onUnauthenticated();
    } else if (problem.code === 'invalid-cursor' && subscription.cursor) {
      subscription.cursor = undefined;
      this.ask(ref);
    } else if (problem.status >= 500 || problem.status === 429) {
      setTimeout(() => { if (this.wanted.has(ref)) this.ask(ref); }, 1_000 + Math.random() * 2_000);
    } else {
      subscription.onProblem?.(problem);
    }
  }

  ask(ref) {
    const { target, cursor } = this.wanted.get(ref);
    this.send({ type: 'subscribe', ref, ...target, ...(cursor ? { after: cursor } : {}) });
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  heard() {
    this.status.heard = Date.now();
  }

  /** A connection can be dead without anybody closing it: a laptop that slept, a lost route. */
  checkPulse() {
    if (this.status.state !== 'live') return;
    const silent = Date.now() - this.status.heard;
    if (silent > GIVE_UP_AFTER) this.lost(0);
    else if (silent > ASK_AFTER) this.send({ type: 'ping' });
  }

  lost(code) {
    this.drop();
    clearTimeout(this.timer);
    if (code === UNAUTHENTICATED) {
      this.onUnauthenticated();
    } else if (code > STAY_AWAY && code < 5000 || code === STAY_AWAY) {
      this.report('refused');
      return;
    }
    const ceiling = Math.min(LAST_WAIT, FIRST_WAIT * 2 ** this.attempt++);
    const wait = ceiling / 2 + Math.random() * ceiling / 2;
    this.timer = setTimeout(() => this.connect(), wait);
    this.report('lost', Date.now() + wait);
  }

  /** Forgets the socket; what it still says is nobody's. */
  drop() {
    const socket = this.socket;
    this.socket = undefined;
    this.byName.clear();
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  /** Since is when the connection went, not when the latest attempt began. */
  report(state, retryAt) {
    const live = (s) => s === 'live';
    const since = live(state) === live(this.status.state) ? this.status.since : Date.now();
    this.status = { ...this.status, state, since, retryAt, attempts: this.attempt };
    this.onStatus(this.status);
  }
}
