// Checkpoints in a file of the workspace, so that a graph which waits for an answer goes
// on in another process: while people think there is none.
import { MemorySaver } from "@langchain/langgraph";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";

export class FileSaver extends MemorySaver {
  constructor(path) {
    super();
    this.path = path;
    if (existsSync(path)) Object.assign(this, JSON.parse(readFileSync(path, "utf8"), revive));
  }

  async put(...args) {
    const config = await super.put(...args);
    this.save();
    return config;
  }

  async putWrites(...args) {
    await super.putWrites(...args);
    this.save();
  }

  save() {
    const { storage, writes } = this;
    writeFileSync(`${this.path}.new`, JSON.stringify({ storage, writes }, preserve));
    renameSync(`${this.path}.new`, this.path);
  }
}

// Bytes are kept in base64.
const preserve = (_, value) => (value instanceof Uint8Array ? { base64: Buffer.from(value).toString("base64") } : value);
const revive = (_, value) => (typeof value?.base64 === "string" ? new Uint8Array(Buffer.from(value.base64, "base64")) : value);
