// The official AG-UI client against a running Holdfast. Each test wants its terminal
// event and no warning.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agentOf, cutter, ended, refused, rest, run, say, silent } from './harness.mjs';

const texts = (agent) => agent.messages.map((m) => (typeof m.content === 'string' ? m.content : '')).join('\n');

test('a run, and the next one', async () => {
  const agent = agentOf({ threadId: 'js-run' });
  say(agent, 'hello');
  const first = await run(agent);
  ended(first, 'success');
  assert.equal(first.text, 'again: hello');
  assert.deepEqual(agent.state, { messages: 1 });
  say(agent, 'more');
  ended(await run(agent), 'success');
  assert.deepEqual(agent.messages.map((m) => m.role), ['user', 'assistant', 'user', 'assistant']);
  assert.match(texts(agent), /again: more/);
});

test('a run that fails', async () => {
  const agent = agentOf({ threadId: 'js-fail' });
  say(agent, 'fail');
  refused(await run(agent), 'agent-error');
});

test('interrupt, reload, resume, and the same resume again', async () => {
  const agent = agentOf({ as: 'admin', runtime: 'shell', threadId: 'js-ask' });
  say(agent, 'touch js');
  const asked = await run(agent);
  ended(asked, 'interrupt');
  const [question] = agent.pendingInterrupts;
  assert.equal(question.reason, 'tool_call');
  assert.deepEqual(question.metadata.holdfast.args, { command: 'touch js' });
  await assert.rejects(agent.runAgent({}), /pending interrupt/);

  const reloaded = agentOf({ as: 'admin', runtime: 'shell', threadId: 'js-ask' });
  ended(await run(reloaded), 'interrupt');
  assert.equal(reloaded.pendingInterrupts[0].id, question.id);
  assert.match(texts(reloaded), /touch js/);

  const resume = [{ interruptId: question.id, status: 'resolved', payload: { approved: true, argsHash: question.metadata.holdfast.argsHash } }];
  const resumed = await run(reloaded, { resume });
  ended(resumed, 'success');
  assert.match(resumed.text + texts(reloaded), /exit 0/);
  assert.deepEqual(reloaded.pendingInterrupts, []);
  ended(await run(agent, { resume }), 'success'); // the first window answers the same
  assert.match(texts(agent), /exit 0/);
});

test('stale resumes', async () => {
  const agent = agentOf({ as: 'admin', runtime: 'shell', threadId: 'js-stale' });
  say(agent, 'touch stale');
  ended(await run(agent), 'interrupt');
  const [{ id, metadata: { holdfast } }] = agent.pendingInterrupts;
  const answer = (payload) => run(agent, { resume: [{ interruptId: id, status: 'resolved', payload }] });
  refused(await answer({ approved: true, argsHash: '0'.repeat(64) }), 'args-changed');
  await rest('bob', 'POST', `/v1/approvals/${id}/decisions`, { decision: 'deny', argsHash: holdfast.argsHash });
  refused(await answer({ approved: true }), 'already-decided');
});

test('who may not answer, and an answer from elsewhere', async () => {
  const agent = agentOf({ runtime: 'shell', threadId: 'js-eyes' });
  say(agent, 'touch eyes');
  ended(await run(agent), 'interrupt');
  const [{ id, metadata: { holdfast } }] = agent.pendingInterrupts;
  refused(await run(agent, { resume: [{ interruptId: id, status: 'resolved', payload: { approved: true } }] }), 'not-an-approver');
  await rest('bob', 'POST', `/v1/approvals/${id}/decisions`, { decision: 'approve', argsHash: holdfast.argsHash });
  agent.pendingInterrupts = []; // somebody else has answered
  ended(await run(agent), 'success');
  assert.match(texts(agent), /exit 0/);
});

test('a stream that is cut in the middle, twice', async (t) => {
  const proxy = await cutter('w20 ', 2);
  t.after(proxy.close);
  const agent = agentOf({ threadId: 'js-cut', base: proxy.base });
  say(agent, 'slow 60');
  for (const time of ['first', 'second']) {
    const cut = await run(agent);
    assert.equal(cut.end, undefined, `the ${time} stream came through`);
  }
  const whole = await run(agent);
  ended(whole, 'success');
  assert.equal(whole.text, Array.from({ length: 60 }, (_, i) => `w${i} `).join(''));
  assert.equal(agent.messages.at(-1).content, whole.text);
  assert.equal(proxy.left(), 0);
});

test('a cancel', async () => {
  const agent = agentOf({ threadId: 'js-cancel' });
  say(agent, 'slow 10000');
  const other = agentOf({ threadId: 'js-cancel' });
  const saying = new Promise((resolve) => { agent.subscribe({ onTextMessageContentEvent: () => resolve() }); });
  const running = run(agent);
  await saying;
  ended(await run(other, { forwardedProps: { holdfast: { cancel: true } } }), 'cancelled');
  ended(await running, 'cancelled');
});

test('tools of the client', async () => {
  const agent = agentOf({ threadId: 'js-tools' });
  const tools = [{ name: 'pick', description: 'Pick a colour', parameters: { type: 'object' } }];
  say(agent, 'pick');
  const called = await run(agent, { tools });
  ended(called, 'success');
  const [toolCallId] = called.end.outcome.pendingToolCallIds;
  const call = agent.messages.flatMap((m) => m.toolCalls ?? []).find((c) => c.id === toolCallId);
  assert.deepEqual(JSON.parse(call.function.arguments), { from: ['red', 'blue'] });
  agent.addMessage({ id: 'picked', role: 'tool', toolCallId, content: 'blue' });
  const went = await run(agent, { tools });
  ended(went, 'success');
  assert.equal(went.text, 'you picked: blue');
  agent.addMessage({ id: 'stranger', role: 'tool', toolCallId: 'nobody', content: 'blue' });
  refused(await run(agent, { tools }), 'not-found');
  say(agent, 'on');
  ended(await run(agent), 'success'); // what was refused is gone from the client's view
  silent();
});
