/** Where a message is typed. What is typed is kept until the server has it. */
import { html, useEffect, useRef, useState } from '../html.js';
import { readDraft, writeDraft } from '../outbox.js';

const BUSY = {
  queue: 'wait behind the open run',
  cancel: 'cancel the open run first',
  reject: 'don’t send while a run is open',
};

/** @param {{session: string, busy: boolean, returned: {content: string, why: string}|null, onSend: (text: string, whenBusy: string) => void}} props */
export function Composer({ session, busy, returned, onSend }) {
  const [text, setText] = useState(() => readDraft(session));
  const [whenBusy, setWhenBusy] = useState('queue');
  const box = useRef();

  // A refused message comes back to be corrected, before whatever was typed since.
  useEffect(() => { if (returned) change(returned.content + (text ? `\n${text}` : '')); }, [returned]);

  function change(value) {
    setText(value);
    writeDraft(session, value);
  }
  function send(event) {
    event?.preventDefault();
    if (!text.trim()) return;
    onSend(text, busy ? whenBusy : 'queue');
    change('');
    box.current.focus();
  }
  function key(event) {
    // While an input method composes, Enter belongs to it.
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) send(event);
  }
  return html`
    <form class="composer" onSubmit=${send} aria-label="Send a message">
      ${returned && html`<p class="notice bad" role="alert">Not sent: ${returned.why}</p>`}
      <div class="row">
        <label class="unseen" for="message">Message</label>
        <textarea id="message" ref=${box} rows="1" maxlength="65536" value=${text} onInput=${(e) => change(e.target.value)} onKeyDown=${key}
          placeholder="Message to the agent"></textarea>
        <button class="primary" disabled=${!text.trim()}>Send</button>
      </div>
      <div class="under">
        <span class="keys">Enter sends, Shift+Enter makes a new line</span>
        ${busy && html`<label>A run is open:
          <select value=${whenBusy} onChange=${(e) => setWhenBusy(e.target.value)}>
            ${Object.entries(BUSY).map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}
          </select></label>`}
      </div>
    </form>`;
}
