/** Signing in: by the one-time code of the URL, else by a token. */
import { html, useState } from '../html.js';
import { api } from '../api.js';
import { explain } from '../format.js';
import { signedIn } from '../store.js';

/** @returns {string|null} the code of `/#code=…`, taken out of the address bar and the history */
export function takeCode() {
  const match = /^#code=([A-Za-z0-9_-]+)$/.exec(location.hash);
  if (!match) return null;
  history.replaceState(null, '', '#/');
  return match[1];
}

/** @param {{failed?: Error}} props failed: why the code of the URL did not do */
export function Login({ failed }) {
  const [token, setToken] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(failed);
  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      signedIn(await api.login({ token: token.trim() }));
    } catch (err) {
      setError(err);
      setBusy(false);
    }
  }
  return html`
    <main class="login">
      <h1>Sign in to Holdfast</h1>
      <form onSubmit=${submit}>
        ${error && html`<p class="notice bad" role="alert">${said(error, failed)}</p>`}
        <label class="field">Token
          <input type="password" name="token" required minlength="16" autocomplete="current-password" autofocus
            value=${token} onInput=${(e) => setToken(e.target.value)} />
          <span class="hint"><code>holdfast token NAME</code> prints one. It is exchanged for a cookie and not kept.</span></label>
        <button class="primary" disabled=${busy}>${busy ? 'Signing in…' : 'Sign in'}</button>
      </form>
    </main>`;
}

function said(error, failed) {
  if (error.status === 401) return error === failed ? 'The link’s code was used before, or is too old. Sign in with a token.' : 'That token isn’t valid.';
  return explain(error);
}
