/**
 * A question to people, with all that an answer needs to know. Only the agent's
 * arguments come from the agent; tool, rule, grade of enforcement and isolation are
 * Holdfast's own word.
 */
import { html, useEffect, useState } from '../html.js';
import { api, newKey, worthRetrying } from '../api.js';
import { explain, when, who } from '../format.js';
import { linkTo } from '../router.js';
import { current, takePrompt } from '../store.js';
import { callLook } from '../phases.js';
import { plain, Revealed } from '../text.js';
import { Args, Hash, isLong, useHashCheck } from './args.js';
import { Deadline, useKeptFocus, useNow } from './basics.js';

/** Reasons that were typed and not sent: a question that is scrolled out of view isn't drawn. */
const typed = new Map();
/** A click this soon after a question appeared was meant for what was there before; milliseconds. */
const ARMED_AFTER = 500;

/** What a person should know about how the answer will be enforced. */
const GRADES = {
  asked: 'asked: the agent asks and obeys',
  mediated: 'mediated: Holdfast carries it, there is no way round',
};

/** @param {{approval: object, place?: 'inbox'|'session'}} props */
export function Question({ approval, place = 'inbox' }) {
  const verdict = useHashCheck(approval);
  // Kept here, so that it stays to be read when the question is settled by somebody else.
  const [refusal, setRefusal] = useState(null);
  const box = useKeptFocus();
  // Nobody approves what was never drawn for them.
  const [whole, setWhole] = useState(() => !isLong(approval.args));
  const open = approval.state === 'pending';
  const look = open ? (approval.risk === 'high' ? 'high' : '') : 'settled';
  return html`
    <article ref=${box} tabindex="-1" class="question ${look}" aria-label="Question: ${plain(approval.tool)}" data-approval=${approval.id}>
      <header class="question-head">
        <span>May <span class="tool"><${Revealed} text=${approval.tool} /></span> run?</span>
        ${approval.risk && html`<span class="tag ${approval.risk === 'high' ? 'bad' : approval.risk === 'medium' ? 'wait' : ''}">${approval.risk} risk</span>`}
        <span class="end">${open ? html`<${Countdown} time=${approval.deadline} />` : html`<${Outcome} approval=${approval} />`}</span>
      </header>
      ${approval.message && html`<blockquote title="The rule’s words; quoted parts come from the agent"><${Revealed} text=${approval.message} /></blockquote>`}
      <${Args} args=${approval.args} whole=${whole} onWhole=${() => setWhole(true)} />
      <${Facts} approval=${approval} verdict=${verdict} place=${place} />
      ${refusal && html`<p class="notice bad" role="alert">${explain(refusal.err)}
        ${refusal.again && html` <button type="button" class="link" onClick=${refusal.again}>Ask again</button>`}</p>`}
      ${open && html`<${Answer} approval=${approval} verdict=${verdict} whole=${whole} onRefused=${setRefusal} />`}
    </article>`;
}

function Countdown({ time }) {
  const now = useNow();
  return time ? html`<${Deadline} time=${time} now=${now} label="answer within" passed="answer was due" />` : html`<span class="deadline">no deadline</span>`;
}

function Facts({ approval, verdict, place }) {
  const rule = approval.rule ? `“${approval.rule}”` : 'the policy’s default';
  return html`
    <dl class="facts">
      <div><dt>requester</dt><dd>${who(approval.requester)}</dd></div>
      <div><dt>rule</dt><dd>${rule}${approval.policy && html` of ${approval.policy}@${approval.revision}`}</dd></div>
      <div><dt>isolation</dt><dd>${approval.isolation || 'none yet'}</dd></div>
      <div><dt>enforcement</dt><dd>${GRADES[approval.enforcement] || approval.enforcement}</dd></div>
      ${place === 'inbox' && html`<div><dt>session</dt><dd><a href=${linkTo(['sessions', approval.session], { n: String(approval.n) })}><code>${approval.session}</code></a></dd></div>`}
      ${approval.approvers?.length > 0 && html`<div><dt>approvers</dt><dd>${approval.approvers.join(', ')}</dd></div>`}
      <div class="full"><dt>sha-256</dt><dd><${Hash} value=${approval.argsHash} verdict=${verdict} /></dd></div>
    </dl>`;
}

/** Whether the rule's list of approvers holds this person; the server decides, this only warns. */
function mayAnswer({ approvers }, me) {
  if (!approvers?.length || !me) return true;
  return approvers.some((a) => a === me.id || me.groups.some((g) => a === `group:${g}`) || me.roles.some((r) => a === `role:${r}`));
}

/** Refusals after which the question stands otherwise than it is shown. */
const OVERTAKEN = ['already-decided', 'approval-expired', 'args-changed'];

/** Shows how the question stands now. Where that can't be read, the stream will tell. */
function readAgain(id) {
  api.getApproval(id).then((now) => takePrompt(now), () => {});
}

function Answer({ approval, verdict, whole, onRefused }) {
  const [comment, setComment] = useState(() => typed.get(approval.id) || '');
  const [busy, setBusy] = useState('');
  const armed = useArmed(approval.id);
  function type(event) {
    setComment(event.target.value);
    typed.set(approval.id, event.target.value);
  }

  // A button that is disabled while it has the focus loses it: while one answer is on its way the others do nothing.
  async function answer(decision, key = newKey()) {
    if (busy) return;
    setBusy(decision);
    onRefused(null);
    try {
      const body = { decision, argsHash: approval.argsHash, ...(comment.trim() ? { comment: comment.trim() } : {}) };
      const settled = await api.decideApproval(approval.id, body, key);
      typed.delete(approval.id);
      if (settled) takePrompt(settled);
    } catch (err) {
      // The same key again can't answer twice, so people may repeat what got no answer.
      onRefused({ err, again: worthRetrying(err) ? () => answer(decision, key) : null });
      if (OVERTAKEN.includes(err.code)) readAgain(approval.id);
    }
    setBusy('');
  }

  const listed = mayAnswer(approval, current().me);
  return html`
    <div class="stack">
      ${!whole && html`<p class="notice wait">The arguments are long. Show all of them to approve.</p>`}
      ${!listed && html`<p class="notice wait">The rule names others as approvers. An answer of yours would be refused, and the refusal recorded.</p>`}
      <div class="answer">
        <label class="field"><span class="unseen">Reason</span>
          <input value=${comment} onInput=${type} maxlength="2000" autocomplete="off"
            placeholder="Reason: agent and audit log see it" /></label>
        <button type="button" class="danger" disabled=${!armed} aria-disabled=${Boolean(busy)} onClick=${() => answer('deny')}>${busy === 'deny' ? 'Denying…' : 'Deny'}</button>
        <button type="button" class="primary" disabled=${!armed || verdict === 'differs' || !whole} aria-disabled=${Boolean(busy)} onClick=${() => answer('approve')}>${busy === 'approve' ? 'Approving…' : 'Approve'}</button>
      </div>
    </div>`;
}

function useArmed(id) {
  const [armed, setArmed] = useState(false);
  useEffect(() => {
    setArmed(false);
    const timer = setTimeout(() => setArmed(true), ARMED_AFTER);
    return () => clearTimeout(timer);
  }, [id]);
  return armed;
}

/** How it came out, by whom, and why. */
export function Outcome({ approval }) {
  const [words, tone] = callLook(approval.state);
  const { decision } = approval;
  const by = decision?.by?.startsWith('service:') ? '' : decision?.by;
  return html`<span class="small"><span class="tag ${tone}">${words}</span>
    ${decision && html` ${by && html`by ${who(by)} `}at ${when(decision.at)}${decision.reason && html` · <${Revealed} text=${decision.reason} />`}`}</span>`;
}
