/** The frame around every page: where one is, what waits, how the connection is. */
import { html, useEffect, useState } from '../html.js';
import { api } from '../api.js';
import { clock, count, span } from '../format.js';
import { may, reconnect, signedOut, useStore } from '../store.js';
import { useNow } from './basics.js';

const CONNECTION = { live: 'live', connecting: 'connecting', lost: 'disconnected', refused: 'disconnected' };

/** @param {{page: string, fill: boolean, children: any}} props */
export function Shell({ page, fill, children }) {
  const waiting = useStore((s) => Object.keys(s.pending || {}).length);
  const connection = useStore((s) => s.connection);
  const announcement = useStore((s) => s.announcement);
  useEffect(() => { document.title = `${waiting ? `(${waiting}) ` : ''}${TITLES[page] || 'Holdfast'} · Holdfast`; }, [waiting, page]);
  const stale = connection.state !== 'live' && connection.heard > 0;
  const root = document.getElementById('app');
  useEffect(() => { root.className = `${fill ? 'fill' : ''} ${stale ? 'stale' : ''}`; }, [fill, stale]);
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the page</a>
    <header class="topbar">
      <a class="brand" href="#/"><${Mark} />Holdfast</a>
      <nav aria-label="Pages">
        <${Tab} to="#/" name="Sessions" here=${page === 'sessions' || page === 'session' || page === 'replay'} />
        <${Tab} to="#/approvals" name="Approvals" here=${page === 'approvals'}>
          ${waiting > 0 && html`<span class="badge" aria-label="${count(waiting, 'question')} waiting">${waiting}</span>`}
        <//>
        ${may('admin', 'auditor') && html`<${Tab} to="#/audit" name="Audit" here=${page === 'audit'} />`}
      </nav>
      <${Account} connection=${connection} />
    </header>
    ${(stale || connection.state === 'refused') && html`<${Banner} connection=${connection} />`}
    <main id="main" tabindex="-1">${children}</main>
    <div class="unseen" role="status" aria-live="polite">${announcement}</div>`;
}

const TITLES = { sessions: 'Sessions', session: 'Session', approvals: 'Approvals', audit: 'Audit', replay: 'Replay' };

/** The fragment is ours, so the skip link moves the focus by itself. */
function skip(event) {
  event.preventDefault();
  document.getElementById('main').focus();
}

function Tab({ to, name, here, children }) {
  return html`<a href=${to} aria-current=${here ? 'page' : undefined}>${name}${children}</a>`;
}

const Mark = () => html`<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" />
  <path d="M11 8v16M21 8v16M11 16h10" stroke-width="3.4" stroke-linecap="round" /></svg>`;

function Account({ connection }) {
  const me = useStore((s) => s.me);
  return html`
    <div class="end">
      <span class="conn ${connection.state}" role="status">${CONNECTION[connection.state]}</span>
      <span title=${`Roles: ${me.roles.join(', ')}`}>${me.id.replace(/^user:/, '')}<span class="who-tenant"> · ${me.tenant}</span></span>
      <${Theme} />
      <button type="button" class="quiet" onClick=${signOut}>Sign out</button>
    </div>`;
}

/** Leaving must work while the server is away; its cookie then ends by itself. */
async function signOut() {
  try {
    await api.logout();
  } finally {
    signedOut();
  }
}

const NEXT = { auto: 'light', light: 'dark', dark: 'auto' };

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme || 'auto');
  function turn() {
    const next = NEXT[theme];
    if (next === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem('holdfast.theme', next);
    } catch {
      // Without storage the choice holds until the page is reloaded.
    }
    setTheme(next);
  }
  return html`<button type="button" class="quiet" onClick=${turn} title="Light, dark, or as the system">Theme: ${theme}</button>`;
}

/** Says since when what is shown may be wrong, and what is being done about it. */
function Banner({ connection }) {
  const now = useNow();
  if (connection.state === 'refused') {
    return html`<div class="banner" role="alert"><strong>Disconnected.</strong> The server doesn’t accept this version of the console.
      <button type="button" onClick=${() => location.reload()}>Reload</button></div>`;
  }
  const next = connection.retryAt && connection.state === 'lost' ? `Trying again in ${span(Math.max(1000, connection.retryAt - now))}.` : 'Trying again…';
  return html`
    <div class="banner" role="alert">
      <strong>Disconnected since ${clock(connection.since)}.</strong>
      <span>Showing state as of ${clock(connection.heard)}.</span>
      <span aria-hidden="true">${next}</span>
      <button type="button" onClick=${reconnect}>Try now</button>
    </div>`;
}
