/** The frame around every page: where one is, what waits, how the connection is. */
import { html, useEffect, useRef, useState } from '../html.js';
import { api } from '../api.js';
import { clock, count, span, who } from '../format.js';
import { may, reconnect, signedOut, useStore } from '../store.js';
import { useNow } from './basics.js';

const CONNECTION = { live: 'live', connecting: 'connecting', lost: 'disconnected', refused: 'disconnected' };

/** @param {{page: string, fill: boolean, children: any}} props */
export function Shell({ page, fill, children }) {
  const waiting = useStore((s) => Object.keys(s.pending || {}).length);
  const connection = useStore((s) => s.connection);
  const announcement = useStore((s) => s.announcement);
  useEffect(() => { document.title = `${waiting ? `(${waiting}) ` : ''}${TITLES[page] || 'Holdfast'} · Holdfast`; }, [waiting, page]);
  // Nothing is stale while the first attempt is on its way.
  const stale = connection.state !== 'live' && (connection.heard > 0 || connection.attempts > 0);
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
  const menu = useRef();
  useEffect(() => {
    // Whoever goes on elsewhere on the page is done with the menu.
    const elsewhere = (event) => { if (!menu.current.contains(event.target)) menu.current.open = false; };
    const escape = (event) => { if (event.key === 'Escape') menu.current.open = false; };
    document.addEventListener('pointerdown', elsewhere);
    document.addEventListener('keydown', escape);
    return () => {
      document.removeEventListener('pointerdown', elsewhere);
      document.removeEventListener('keydown', escape);
    };
  }, []);
  return html`
    <div class="end">
      <span class="conn ${connection.state}" role="status">${CONNECTION[connection.state]}</span>
      <details class="menu" ref=${menu}>
        <summary aria-label="Account of ${who(me.id)}">${who(me.id)}</summary>
        <div class="menu-box">
          <dl class="facts"><div class="full"><dt>tenant</dt><dd>${me.tenant}</dd></div><div class="full"><dt>roles</dt><dd>${me.roles.join(', ')}</dd></div></dl>
          <${Theme} />
          <button type="button" onClick=${signOut}>Sign out</button>
        </div>
      </details>
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

const THEMES = { auto: 'as the system', light: 'light', dark: 'dark' };

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme || 'auto');
  function choose(next) {
    if (next === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem('holdfast.theme', next);
    } catch {
      // Without storage the choice holds until the page is reloaded.
    }
    setTheme(next);
  }
  return html`<label class="field">Theme
    <select name="theme" value=${theme} onChange=${(e) => choose(e.target.value)}>
      ${Object.entries(THEMES).map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}
    </select></label>`;
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
      <span>${connection.heard ? `Showing state as of ${clock(connection.heard)}.` : 'What is shown was read once and doesn’t move.'}</span>
      <span aria-hidden="true">${next}</span>
      <button type="button" onClick=${reconnect}>Try now</button>
    </div>`;
}
