// An agent for Holdfast made with LangGraph (adapter agui), with a scripted model in
// the place of one that would need a key: put yours into model.mjs.
//
// It keeps notes, like the other examples: say `note buy milk`, `hold note buy milk`,
// `show`, `config`, `count 50`, or anything else. Try it against `holdfast dev`:
//
//   (cd examples/langgraph && npm ci)
//   holdfast policy apply -f examples/policy.yaml
//   holdfast runtime apply -f examples/langgraph/runtime.yaml
//   holdfast session create notes-langgraph -m 'note call the plumber on Monday' -w
//
// What LangGraph and AG-UI say for the same:
//
//   thread_id                  threadId, the session
//   a message chunk            TEXT_MESSAGE_CHUNK, TOOL_CALL_CHUNK
//   a tool's message           TOOL_CALL_RESULT
//   interrupt(question)        RUN_FINISHED with the outcome interrupt
//   new Command({ resume })    a run with resume[]
import { AIMessageChunk, HumanMessage, ToolMessage } from "@langchain/core/messages";
import { Command } from "@langchain/langgraph";
import { createServer } from "node:http";
import { FileSaver } from "./checkpoints.mjs";
import { graph } from "./graph.mjs";
import { ScriptedModel } from "./model.mjs";

const agent = graph(new ScriptedModel(), new FileSaver("checkpoints.json"));

// What the graph is given: the answer to its question, or the newest message.
function given({ messages, resume }) {
  if (resume?.length) {
    const [{ payload, status }] = resume;
    return new Command({ resume: { approved: false, reason: status, ...payload } });
  }
  const { id, content } = messages.filter((m) => m.role === "user").at(-1);
  return { messages: [new HumanMessage({ id, content })] };
}

// The events of one run of the graph.
async function* run(input, signal) {
  const { threadId, runId } = input;
  yield { type: "RUN_STARTED", threadId, runId };
  const stream = await agent.stream(given(input), {
    configurable: { thread_id: threadId, runId },
    streamMode: ["messages", "updates"],
    signal,
  });
  let interrupts = [];
  for await (const [mode, piece] of stream) {
    if (mode === "messages") yield* said(piece[0]);
    else if (piece.__interrupt__) interrupts = piece.__interrupt__.map(({ value }) => value);
  }
  const outcome = interrupts.length
    ? { type: "interrupt", interrupts: interrupts.map(({ call, ...question }) => ({ id: call, reason: "tool_call", ...question })) }
    : { type: "success" };
  yield { type: "RUN_FINISHED", threadId, runId, outcome };
}

// What a piece of a message is in AG-UI. Chunks need no start and no end.
function* said(message) {
  if (ToolMessage.isInstance(message)) {
    yield { type: "TOOL_CALL_RESULT", messageId: message.id ?? `result-${message.tool_call_id}`, toolCallId: message.tool_call_id, content: message.text };
  } else if (AIMessageChunk.isInstance(message)) {
    if (message.text) yield { type: "TEXT_MESSAGE_CHUNK", messageId: message.id, role: "assistant", delta: message.text };
    for (const { id, name, args } of message.tool_call_chunks ?? []) {
      yield { type: "TOOL_CALL_CHUNK", toolCallId: id, toolCallName: name, delta: args };
    }
  }
}

createServer(async (request, response) => {
  if (request.method !== "POST") return response.writeHead(request.url === "/health" ? 200 : 404).end();
  let body = "";
  for await (const piece of request.setEncoding("utf8")) body += piece;
  const cancelled = new AbortController();
  response.on("close", () => cancelled.abort()); // nobody listens any more
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  const say = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
  try {
    for await (const event of run(JSON.parse(body), cancelled.signal)) say(event);
  } catch (error) {
    if (!cancelled.signal.aborted) say({ type: "RUN_ERROR", code: "failed", message: String(error) });
  }
  response.end();
}).listen(process.env.PORT, "127.0.0.1");
