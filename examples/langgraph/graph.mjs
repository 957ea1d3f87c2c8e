// The graph: a model, and its tools. To write a note needs Holdfast's yes, and while a
// person thinks about it the graph is interrupted.
//
//   model ──calls a tool──▶ ask ──▶ wait ──▶ act ──▶ model
//     └── has said it all ──▶ end
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { Annotation, END, interrupt, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { ask, execute, session } from "./holdfast.mjs";

const notes = "notes.txt"; // in the workspace, where the agent is started

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  // What Holdfast says of the call that is due.
  verdict: Annotation(),
});

const dueCall = (state) => state.messages.at(-1).tool_calls[0];

// Asks before the tool is used. Where it has to wait, it doesn't: that is for the next
// node, which alone is done again when the graph goes on.
async function askFirst(state, { configurable }) {
  const { id, name, args } = dueCall(state);
  if (name !== "write_note") return { verdict: { decision: "allow" } };
  const told = state.messages.filter((m) => HumanMessage.isInstance(m)).at(-1).text;
  return { verdict: await ask(configurable.runId, id, name, args, told.startsWith("hold ") ? "hold" : "park") };
}

// Waits for a person's answer: interrupt ends the run here, and returns with what the
// next run resumes with.
function wait({ verdict, ...state }) {
  if (verdict.decision) return {};
  const answer = interrupt({ call: verdict.call, toolCallId: dueCall(state).id, message: "May I write that down?" });
  return { verdict: { ...verdict, decision: answer.approved ? "allow" : "deny", reason: answer.reason } };
}

async function act(state, { configurable }) {
  const { id, name, args } = dueCall(state);
  const content = await use(name, args, state.verdict, configurable.runId);
  return { messages: [new ToolMessage({ content, name, tool_call_id: id })], verdict: null };
}

async function use(name, { text }, verdict, runId) {
  if (verdict.decision !== "allow") return `not written: ${verdict.reason}`;
  switch (name) {
    case "show_notes":
      return existsSync(notes) ? readFileSync(notes, "utf8") : "nothing yet";
    case "session_config":
      return JSON.stringify((await session()).config);
    default:
      return execute(runId, verdict, () => {
        appendFileSync(notes, `${text}\n`);
        return "written";
      });
  }
}

export const graph = (model, checkpointer) =>
  new StateGraph(State)
    .addNode("model", async ({ messages }, config) => ({ messages: [await model.invoke(messages, config)] }))
    .addNode("ask", askFirst)
    .addNode("wait", wait)
    .addNode("act", act)
    .addEdge(START, "model")
    .addConditionalEdges("model", (state) => (state.messages.at(-1).tool_calls?.length ? "ask" : END))
    .addEdge("ask", "wait")
    .addEdge("wait", "act")
    .addEdge("act", "model")
    .compile({ checkpointer });
