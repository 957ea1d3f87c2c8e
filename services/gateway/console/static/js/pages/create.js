/** The dialog that makes a session. */
import { html, useEffect, useRef, useState } from '../html.js';
import { api, newKey } from '../api.js';
import { explain } from '../format.js';
import { go, linkTo } from '../router.js';
import { Modal } from '../components/basics.js';

export function CreateDialog({ onClose }) {
  const [runtimes, setRuntimes] = useState(null);
  const [form, setForm] = useState({ runtime: '', message: '', labels: '' });
  const [error, setError] = useState('');
  const [busy, setBusy] = useState(false);
  // The same body keeps its key: a repeat after a lost answer makes no second session.
  const intent = useRef({ body: '', key: '' });

  useEffect(() => {
    api.listRuntimes().then(({ items }) => {
      setRuntimes(items);
      setForm((f) => ({ ...f, runtime: f.runtime || items[0]?.name || '' }));
    }, (err) => setError(explain(err)));
  }, []);

  const put = (name) => (event) => setForm({ ...form, [name]: event.target.value });

  async function submit(event) {
    event.preventDefault();
    setError('');
    let body;
    try {
      body = bodyOf(form);
    } catch (err) {
      setError(err.message);
      return;
    }
    const text = JSON.stringify(body);
    if (intent.current.body !== text) intent.current = { body: text, key: newKey() };
    setBusy(true);
    try {
      const session = await api.createSession(body, intent.current.key);
      go(linkTo(['sessions', session.id]));
    } catch (err) {
      setError(explain(err));
      setBusy(false);
    }
  }

  return html`
    <${Modal} label="New session" onClose=${onClose}>
      <form onSubmit=${submit}>
        <h2>New session</h2>
        ${error && html`<p class="notice bad" role="alert">${error}</p>`}
        <label class="field">Runtime
          <select name="runtime" required value=${form.runtime} onChange=${put('runtime')} disabled=${!runtimes}>
            ${(runtimes || []).map((r) => html`<option key=${r.name} value=${r.name}>${r.name} @${r.revision} · ${r.spec.kind}${r.spec.policy ? ` · policy ${r.spec.policy}` : ''}</option>`)}
          </select>
          ${runtimes && !runtimes.length && html`<span class="hint">There are no runtimes yet: <code>holdfast runtime apply</code></span>`}</label>
        <label class="field">First message
          <textarea name="message" rows="4" maxlength="65536" value=${form.message} onInput=${put('message')}
            placeholder="What should the agent do? May be left empty."></textarea></label>
        <label class="field">Labels
          <input name="labels" value=${form.labels} onInput=${put('labels')} placeholder="team=search, purpose=trial" autocomplete="off" />
          <span class="hint">key=value, separated by commas</span></label>
        <div class="actions">
          <button type="button" onClick=${onClose}>Cancel</button>
          <button class="primary" disabled=${busy || !form.runtime}>${busy ? 'Creating…' : 'Create session'}</button>
        </div>
      </form>
    <//>`;
}

/** @returns {object} the body of the create; throws where the labels can't be read */
function bodyOf({ runtime, message, labels }) {
  const body = { runtime };
  if (message.trim()) body.message = message;
  const pairs = labels.split(',').map((l) => l.trim()).filter(Boolean);
  for (const pair of pairs) if (!/^[^=]+=/.test(pair)) throw new Error(`“${pair}” is no label; write key=value.`);
  if (pairs.length) body.labels = Object.fromEntries(pairs.map((pair) => [pair.split('=')[0].trim(), pair.slice(pair.indexOf('=') + 1).trim()]));
  return body;
}
