/**
 * Messages that were typed are not lost: a draft and what is on its way are kept in
 * the tab's storage, and what got no answer is sent again under the same
 * Idempotency-Key, so that it arrives once.
 */
import { api, newKey, worthRetrying } from './api.js';

const FIRST_WAIT = 500;
const LAST_WAIT = 10_000;

const draftPlace = (session) => `holdfast.draft.${session}`;
const outboxPlace = (session) => `holdfast.outbox.${session}`;

/** @returns {string} what was typed and not sent */
export const readDraft = (session) => sessionStorage.getItem(draftPlace(session)) || '';

/** Keeps what is typed, letter by letter. */
export function writeDraft(session, text) {
  if (text) sessionStorage.setItem(draftPlace(session), text);
  else sessionStorage.removeItem(draftPlace(session));
}

/**
 * @typedef {{key: string, content: string, whenBusy: string, state: 'sending'|'retrying', error?: string}} Outgoing
 */
export class Outbox {
  /**
   * @param {string} session
   * @param {(messages: Outgoing[]) => void} onChange
   * @param {(message: Outgoing, err: Error) => void} onRefused the server doesn't take it as it is
   */
  constructor(session, onChange, onRefused) {
    Object.assign(this, { session, onChange, onRefused });
    /** @type {Outgoing[]} */
    this.messages = JSON.parse(sessionStorage.getItem(outboxPlace(session)) || '[]');
    this.attempt = 0;
  }

  start() {
    this.changed();
    this.pump();
  }

  /** What is still on its way stays in storage and goes on when the page is opened again. */
  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  add(content, whenBusy) {
    this.messages = [...this.messages, { key: newKey(), content, whenBusy, state: 'sending' }];
    this.changed();
    this.pump();
  }

  /** Tries again now: the connection is back. */
  hurry() {
    clearTimeout(this.timer);
    this.attempt = 0;
    if (this.waiting()) this.retry();
  }

  /** Sends one after the other: the order in which they were typed is their order. */
  async pump() {
    if (this.busy || this.stopped || !this.messages.length) return;
    this.busy = true;
    const [first] = this.messages;
    try {
      await api.sendMessage(this.session, { content: first.content, whenBusy: first.whenBusy }, first.key);
      this.remove(first);
      this.attempt = 0;
    } catch (err) {
      this.failed(first, err);
    }
    this.busy = false;
    if (!this.waiting()) this.pump();
  }

  waiting() {
    return this.messages[0]?.state === 'retrying';
  }

  failed(message, err) {
    if (err.status === 401) {
      this.stop(); // signed out; whoever signs in again finds it in the outbox
      return;
    }
    if (!worthRetrying(err)) {
      this.remove(message);
      this.onRefused(message, err);
      return;
    }
    this.messages = this.messages.map((m) => (m.key === message.key ? { ...m, state: 'retrying', error: err.message } : m));
    this.changed();
    const ceiling = Math.min(LAST_WAIT, FIRST_WAIT * 2 ** this.attempt++);
    this.timer = setTimeout(() => this.retry(), ceiling / 2 + Math.random() * ceiling / 2);
  }

  retry() {
    this.messages = this.messages.map((m) => ({ ...m, state: 'sending' }));
    this.pump();
  }

  remove(message) {
    this.messages = this.messages.filter((m) => m.key !== message.key);
    this.changed();
  }

  changed() {
    if (this.messages.length) sessionStorage.setItem(outboxPlace(this.session), JSON.stringify(this.messages));
    else sessionStorage.removeItem(outboxPlace(this.session));
    this.onChange(this.messages);
  }
}
