// A model that needs no key: it says what a script has for what it is told. It streams
// its words, and calls tools, as a real one does.
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessageChunk } from "@langchain/core/messages";
import { ChatGenerationChunk } from "@langchain/core/outputs";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

export class ScriptedModel extends BaseChatModel {
  constructor() {
    super({});
  }

  _llmType() {
    return "scripted";
  }

  async _generate(messages, options, runManager) {
    let whole;
    for await (const piece of this._streamResponseChunks(messages, options, runManager)) {
      whole = whole ? whole.concat(piece) : piece;
    }
    return { generations: [whole] };
  }

  async *_streamResponseChunks(messages, options, runManager) {
    const id = randomUUID();
    for await (const piece of script(messages.at(-1), options.signal)) {
      const chunk = new ChatGenerationChunk({
        text: piece.content ?? "",
        message: new AIMessageChunk({ id, content: "", ...piece }),
      });
      yield chunk;
      await runManager?.handleLLMNewToken(chunk.text, undefined, undefined, undefined, undefined, { chunk });
    }
  }
}

// What the model answers to a message, in pieces.
async function* script(message, signal) {
  const said = message.text;
  if (message.getType() === "tool") {
    yield { content: said };
  } else if (said === "show") {
    yield calls("show_notes", message);
  } else if (said === "config") {
    yield calls("session_config", message);
  } else if (/^(hold )?note /.test(said)) {
    yield calls("write_note", message, { text: said.replace(/^(hold )?note /, "") });
  } else if (/^count \d+$/.test(said)) {
    for (let i = 0; i < Number(said.slice("count ".length)); i++) {
      await sleep(100, undefined, { signal });
      yield { content: `${i} ` };
    }
  } else {
    for (const word of said.split(" ")) yield { content: `${word} ` };
  }
}

// A call of a tool. Its id is the same whenever the same message is answered.
function calls(name, message, args = {}) {
  return { tool_call_chunks: [{ type: "tool_call_chunk", index: 0, id: `${name}-${message.id}`, name, args: JSON.stringify(args) }] };
}
