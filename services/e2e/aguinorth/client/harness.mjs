// What the tests of the official client share: an agent that remembers every event, a
// proxy that cuts connections, and a rule: whatever the client warns of fails the test.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { HttpAgent } from '@ag-ui/client';
import { EventSchema } from '@ag-ui/core/schemas';

const env = (name) => process.env[name] ?? assert.fail(`${name} is not set: this runs by make test-agui`);

export const url = env('HOLDFAST_URL');
const tokens = JSON.parse(env('HOLDFAST_TOKENS'));

const warnings = [];
console.warn = (...args) => warnings.push(args.join(' '));

/** Fails if the client has warned of anything since it was last asked. */
export function silent() {
  assert.deepEqual(warnings.splice(0), [], 'the client warned');
}

/** An agent of one thread, as somebody, through a proxy where one is given. */
export function agentOf({ as = 'alice', runtime = 'picker', threadId, base = url, messages = [] }) {
  return new HttpAgent({
    url: `${base}/v1/runtimes/${runtime}/agui`, headers: { Authorization: `Bearer ${tokens[as]}` }, threadId, initialMessages: messages,
    fetch: async (address, init) => {
      const response = await fetch(address, init);
      const stream = [];
      streams.push(stream);
      return new Response(kept(response.body, stream), { status: response.status, headers: response.headers });
    },
  });
}

const streams = [];

/**
 * A body that is kept as it passes. One that breaks off just ends, as behind a proxy that
 * ends it in order: the client can't tell that from a whole one, and of an error it leaves
 * a rejection behind that nobody handles.
 */
function kept(body, into) {
  const reader = body.getReader();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await reader.read().catch(() => ({ done: true }));
      if (done) return controller.close();
      into.push(value);
      return controller.enqueue(value);
    },
    cancel: () => reader.cancel(),
  });
}

/** Wants every event of the streams since to be as AG-UI's own schema has it, before the client has stripped it. */
function valid() {
  for (const stream of streams.splice(0)) {
    const text = Buffer.concat(stream).toString();
    assert.ok(!text.includes('\r'), 'a CR in a stream');
    const whole = text.split('\n').slice(0, -1); // what was cut is not looked at
    for (const line of whole.filter((l) => l.startsWith('data: '))) EventSchema.parse(JSON.parse(line.slice(6)));
  }
}

/**
 * One run of an agent. A stream that is cut resolves like a whole one, so what ended it
 * is told: the terminal event, or undefined.
 */
export async function run(agent, parameters = {}) {
  const events = [];
  const seen = { onEvent: ({ event }) => { events.push(event); } };
  let error;
  try {
    await agent.runAgent(parameters, seen);
  } catch (e) {
    error = e;
  }
  const terminal = events.filter((e) => e.type === 'RUN_FINISHED' || e.type === 'RUN_ERROR');
  valid();
  assert.ok(terminal.length <= 1, 'more than one end');
  if (terminal.length) assert.equal(events.at(-1), terminal[0], 'something follows the end');
  return { events, end: terminal[0], error, text: events.filter((e) => e.type === 'TEXT_MESSAGE_CONTENT').map((e) => e.delta).join('') };
}

/** Wants a run that has ended, and well. */
export function ended(result, type) {
  assert.ok(result.end, `no terminal event: ${result.error ?? 'the stream was cut'}`);
  assert.equal(result.end.type, 'RUN_FINISHED', `${result.end.code}: ${result.end.message}`);
  assert.equal(result.end.outcome?.type ?? 'success', type);
  silent();
}

/** Wants a run that was refused with a code. */
export function refused(result, code) {
  assert.ok(result.end, `no terminal event: ${result.error}`);
  assert.equal(result.end.type, 'RUN_ERROR');
  assert.equal(result.end.code, code);
  silent();
}

let ids = 0;
/** Says something: a user's message in the thread. */
export function say(agent, content) {
  agent.addMessage({ id: `user-${agent.threadId}-${ids++}`, role: 'user', content });
}

/** A call of the REST API. */
export async function rest(as, method, path, body) {
  const response = await fetch(url + path, {
    method, headers: { Authorization: `Bearer ${tokens[as]}`, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body),
  });
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
  return response.json();
}

/** A TCP proxy that cuts a connection dead when a text goes by, as often as told. */
export async function cutter(text, times) {
  const target = new URL(url);
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(target.port), target.hostname);
    let passed = '';
    upstream.on('data', (chunk) => {
      passed += chunk;
      client.write(chunk);
      if (times > 0 && passed.includes(text)) {
        times--;
        client.resetAndDestroy();
        upstream.destroy();
      }
    });
    client.pipe(upstream);
    client.on('error', () => upstream.destroy());
    client.on('close', () => upstream.destroy());
    upstream.on('error', () => client.destroy());
    upstream.on('end', () => client.end());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { base: `http://127.0.0.1:${server.address().port}`, close: () => server.close(), left: () => times };
}
