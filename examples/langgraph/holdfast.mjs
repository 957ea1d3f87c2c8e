// Holdfast, as an agent sees it. Every call may be repeated: the same ids get the same
// answer.
import { randomUUID } from "node:crypto";

const base = `${process.env.HOLDFAST_URL}/v1/agent`;

async function call(method, path, body) {
  const response = await fetch(base + path, {
    method,
    headers: { "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

// The session that the agent works in, with its config.
export const session = () => call("GET", "/session");

// Asks whether a call may be made; the policy decides, or a person. No decision means
// that the answer is to come: in mode hold it is waited for here.
export async function ask(runId, agentCallId, tool, args, mode) {
  let verdict = await call("POST", "/calls", { agentCallId, runId, tool, args, modes: [mode] });
  while (!verdict.decision && verdict.mode === "hold") verdict = await call("GET", `/calls/${verdict.call}?wait=30`);
  return verdict;
}

// Claims an allowed call, which can be done once, does it, and reports what came of it.
export async function execute(runId, { call: id, argsHash }, work) {
  const nonce = randomUUID();
  await call("POST", `/calls/${id}/start`, { runId, argsHash, nonce });
  const output = await work();
  await call("POST", `/calls/${id}/result`, { runId, nonce, exitCode: 0, output });
  return output;
}
