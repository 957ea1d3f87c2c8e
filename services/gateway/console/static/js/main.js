/** Starts the console: finds out who is signed in and shows the page of the URL. */
import { html, render, useEffect, useRef, useState } from './html.js';
import { api } from './api.js';
import { explain } from './format.js';
import { useRoute } from './router.js';
import { begin, signedIn, useStore } from './store.js';
import { Failure } from './components/basics.js';
import { Shell } from './components/shell.js';
import { Login, takeCode } from './pages/login.js';
import { Sessions } from './pages/sessions.js';
import { SessionPage } from './pages/session.js';
import { Approvals } from './pages/approvals.js';
import { Audit } from './pages/audit.js';
import { Replay } from './pages/replay.js';

/** A code signs in once: a reload must not try it again. */
const code = takeCode();

function App() {
  const me = useStore((s) => s.me);
  const [failed, setFailed] = useState(null);
  const [refused, setRefused] = useState(null);
  async function start() {
    setFailed(null);
    try {
      if (code) signedIn(await api.login({ code }));
      else await begin();
      return;
    } catch (err) {
      // The code may be used up while the cookie that it gave still holds.
      if (!code) return setFailed(err);
      setRefused(err);
    }
    try {
      await begin();
    } catch (err) {
      setFailed(err);
    }
  }
  useEffect(() => { start(); }, []);
  if (failed) return html`<main class="login"><${Failure} error=${explain(failed)} retry=${start} /></main>`;
  if (me === undefined) return html`<main class="login"><p class="muted">Connecting…</p></main>`;
  return me ? html`<${Page} />` : html`<${Login} failed=${refused} />`;
}

/** Pages by path; each is made anew for another subject, so that nothing of the last one stays. */
function Page() {
  const { path, query } = useRoute();
  const [first = 'sessions', id, sub] = path;
  useArrival(path.join('/'));
  if (first === 'sessions' && id && sub === 'replay') return html`<${Shell} page="replay" fill><${Replay} key=${id} id=${id} query=${query} /><//>`;
  if (first === 'sessions' && id) return html`<${Shell} page="session" fill><${SessionPage} key=${id} id=${id} n=${Number(query.get('n')) || 0} /><//>`;
  if (first === 'approvals') return html`<${Shell} page="approvals"><${Approvals} /><//>`;
  if (first === 'audit') return html`<${Shell} page="audit"><${Audit} query=${query} /><//>`;
  if (first === 'sessions') return html`<${Shell} page="sessions"><${Sessions} query=${query} /><//>`;
  return html`<${Shell} page=""><div class="empty"><h1>There is no such page.</h1><a href="#/">All sessions</a></div><//>`;
}

/** On arriving at another page the focus goes there, as it does where browsers load pages. */
function useArrival(page) {
  const last = useRef(page);
  useEffect(() => {
    if (last.current !== page) document.getElementById('main').focus({ preventScroll: true });
    last.current = page;
  }, [page]);
}

render(html`<${App} />`, document.getElementById('app'));
