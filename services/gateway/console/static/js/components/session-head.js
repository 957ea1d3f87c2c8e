/** What a session is, how it stands, and what may be done with it now. */
import { html, useState } from '../html.js';
import { api, newKey } from '../api.js';
import { count, explain, stamp, who } from '../format.js';
import { linkTo } from '../router.js';
import { allows } from '../phases.js';
import { may } from '../store.js';
import { Revealed } from '../text.js';
import { Age, Deadline, Modal, Phase, useNow } from './basics.js';

/** What is due, in words for before and after. */
const DEADLINES = {
  approval: ['answer within', 'answer was due'], execution: ['start within', 'start was due'], claim: ['sandbox within', 'sandbox was due'],
  idle: ['idle in', 'idle since'], max: ['expires in', 'expired'],
};

/** @param {{session: object, asOf: number, onChanged: (session: object) => void}} props asOf: the n of a moment in the past, 0 for now */
export function SessionHead({ session: s, asOf, onChanged }) {
  return html`
    <header class="session-head live-state">
      <div class="session-title">
        <h1>${s.id}</h1>
        <${Phase} session=${s} />
        ${s.waiting > 0 && html`<span class="tag wait">${count(s.waiting, 'question')} waiting</span>`}
        ${!asOf && html`<${Actions} session=${s} onChanged=${onChanged} />`}
      </div>
      <div class="meta" role="group" aria-label="About the session" tabindex="0">
        <span>runtime <b>${s.runtime.name}@${s.runtime.revision}</b></span>
        <span>isolation <b>${s.isolation || 'none yet'}</b></span>
        <span>generation <b>${s.generation}</b></span>
        <span>owner <b>${who(s.owner)}</b></span>
        <${Times} session=${s} live=${!asOf} />
        ${Object.entries(s.labels).map(([k, v]) => html`<span class="tag" key=${k}>${k}=${v}</span>`)}
      </div>
      ${s.cause && html`<p class="small ${s.outcome === 'failed' ? 'notice bad' : 'muted'}"><${Revealed} text=${s.cause} /></p>`}
      ${asOf > 0 && html`<p class="notice wait">As it was at event ${asOf}. <a href=${linkTo(['sessions', s.id])}>As it is now</a> · <a href=${linkTo(['sessions', s.id, 'replay'], { n: String(asOf) })}>Replay from here</a></p>`}
    </header>`;
}

function Times({ session: s, live }) {
  const now = useNow();
  return html`
    <span title=${stamp(s.createdAt)}>age <b><${Age} time=${s.createdAt} now=${now} /></b></span>
    ${live && s.phase !== 'ended' && Object.entries(DEADLINES).map(([kind, [label, passed]]) => s.deadlines[kind]
      && html`<${Deadline} key=${kind} time=${s.deadlines[kind]} now=${now} label=${label} passed=${passed} />`)}`;
}

function Actions({ session: s, onChanged }) {
  const [busy, setBusy] = useState('');
  const [error, setError] = useState('');
  const [ending, setEnding] = useState(false);
  async function act(name, call) {
    if (busy) return; // not disabled: a disabled button loses the focus
    setBusy(name);
    setError('');
    try {
      const changed = await call(newKey());
      if (changed) onChanged(changed);
    } catch (err) {
      setError(explain(err));
    }
    setBusy('');
  }
  const move = (name, body) => act(name, (key) => api.moveSession(s.id, name, key, body));
  const operates = may('admin', 'developer', 'operator');
  const button = (name, words, run, tone = '') => html`<button type="button" key=${name} class=${tone} aria-disabled=${Boolean(busy)} onClick=${run}>${busy === name ? '…' : words}</button>`;
  return html`
    <div class="end">
      <a class="button" href=${linkTo(['sessions', s.id, 'replay'])}>Replay</a>
      ${operates && s.run && s.phase !== 'ending' && s.phase !== 'ended' && button('cancel', 'Cancel run', () => act('cancel', (key) => api.cancelRun(s.id, s.run, key)))}
      ${operates && allows(s.phase, 'suspend') && button('suspend', 'Suspend', () => move('suspend'))}
      ${operates && allows(s.phase, 'resume') && button('resume', 'Resume', () => move('resume'))}
      ${operates && allows(s.phase, 'terminate') && button('terminate', 'Terminate…', () => setEnding(true), 'danger')}
    </div>
    ${error && html`<p class="notice bad" role="alert">${error} <button type="button" class="link" onClick=${() => setError('')}>Dismiss</button></p>`}
    ${ending && html`<${TerminateDialog} session=${s} onClose=${() => setEnding(false)} onConfirm=${(reason) => { setEnding(false); move('terminate', reason ? { reason } : {}); }} />`}`;
}

function TerminateDialog({ session, onClose, onConfirm }) {
  const [reason, setReason] = useState('');
  return html`
    <${Modal} label="Terminate the session" onClose=${onClose}>
      <form onSubmit=${(e) => { e.preventDefault(); onConfirm(reason.trim()); }}>
        <h2>Terminate this session?</h2>
        <p>It ends for good: its run is cancelled, its open questions are cancelled, its sandbox and workspace are deleted. The log stays.</p>
        <p class="mono small">${session.id}</p>
        <label class="field">Reason
          <input name="reason" maxlength="1000" value=${reason} onInput=${(e) => setReason(e.target.value)} autocomplete="off" placeholder="May be left empty" /></label>
        <div class="actions"><button type="button" onClick=${onClose}>Keep it</button><button class="danger-fill">Terminate</button></div>
      </form>
    <//>`;
}
