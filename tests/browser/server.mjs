// server.mjs: a real `dibs serve` on a folder of its own, and the API around the pages.
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { Agent, request } from "node:http";
import os from "node:os";
import path from "node:path";
import process from "node:process";
import readline from "node:readline";

export const ROOT = path.resolve(path.dirname(new URL(import.meta.url).pathname), "../..");
export const BINARY = process.env.DIBS_BINARY ?? path.join(ROOT, "build/dibs");
const START_MS = 30000;

/* Our own environment without any setting of dibs. */
export function cleanEnvironment(more = {}) {
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith("DIBS_"));
  return { ...Object.fromEntries(own), ...more };
}

export class Server {
  /* Starts one; `settings` are DIBS_ variables, `secrets` become files that they name. */
  static async start({ settings = {}, secrets = {}, flags = [] } = {}) {
    const server = new Server();
    server.folder = await mkdtemp(path.join(os.tmpdir(), "dibs-browser-"));
    for (const [name, text] of Object.entries(secrets)) {
      settings[name] = path.join(server.folder, name);
      await writeFile(settings[name], text, { mode: 0o600 });
    }
    server.settings = Object.fromEntries(
      Object.entries(settings).map(([name, value]) => [
        `DIBS_${name.toUpperCase()}`,
        String(value),
      ]),
    );
    server.flags = flags;
    server.agent = new Agent({ keepAlive: true, maxSockets: 64 });
    server.listen = "127.0.0.1:0";
    await server.run();
    return server;
  }

  /* Runs the process and waits until it says where it listens. */
  async run() {
    this.log = [];
    this.process = spawn(
      BINARY,
      [
        "serve",
        "--listen",
        this.listen,
        "--ledger",
        `sqlite:${this.folder}/dibs.db`,
        ...this.flags,
      ],
      {
        env: cleanEnvironment(this.settings),
        cwd: this.folder,
        stdio: ["ignore", "ignore", "pipe"],
      },
    );
    this.ended = new Promise((resolve) => {
      this.process.once("exit", resolve);
      this.process.once("error", (error) => resolve(this.log.push(error.message)));
    });
    const lines = readline.createInterface({ input: this.process.stderr });
    this.listen = await new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(this.log.join("\n"))), START_MS);
      lines.on("line", (line) => {
        this.log.push(line);
        const found = /event=listening address=(\S+)/.exec(line);
        if (found) (resolve(found[1]), clearTimeout(late));
      });
      this.ended.then(() => reject(new Error(`it ended: ${this.log.join("\n")}`)));
    });
    this.url = `http://${this.listen}`;
  }

  async halt(signal = "SIGTERM") {
    this.process.kill(signal);
    await this.ended;
  }

  async stop() {
    if (this.process.exitCode === null) await this.halt();
    this.agent.destroy();
    await rm(this.folder, { recursive: true, force: true });
  }

  /* One call: `{ status, body }`. */
  call(method, where, body, headers = {}) {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const all = { ...headers };
    if (text !== undefined) {
      all["Content-Type"] = "application/json";
      all["Content-Length"] = Buffer.byteLength(text);
    }
    return new Promise((resolve, reject) => {
      const sent = request(
        this.url + where,
        { method, headers: all, agent: this.agent },
        (answer) => {
          const pieces = [];
          answer.on("data", (piece) => pieces.push(piece));
          answer.on("end", () => {
            const said = Buffer.concat(pieces).toString();
            const isJson = /json/.test(answer.headers["content-type"] ?? "");
            resolve({
              status: answer.statusCode,
              body: isJson ? JSON.parse(said) : said,
            });
          });
        },
      );
      sent.on("error", reject);
      sent.end(text);
    });
  }

  async get(where, headers) {
    return (await this.call("GET", where, undefined, headers)).body;
  }

  /* Makes a policy; times are seconds from now. */
  async policy({ opens_in_s, ...rest } = {}) {
    const body = {
      name: "Launch day",
      discount: { type: "percent", value: 20 },
      total: 100,
      ...rest,
    };
    if (opens_in_s) body.opens_at = new Date(Date.now() + opens_in_s * 1000).toISOString();
    const { status, body: made } = await this.call("POST", "/v1/policies", body);
    if (status !== 201) throw new Error(JSON.stringify(made));
    return made;
  }

  claim(id, user) {
    return this.call("POST", `/v1/policies/${id}/claims`, { user });
  }

  /* Lets `count` visitors claim, all at once as far as the connections go. */
  crowd(id, count, name = "visitor") {
    return Promise.all(Array.from({ length: count }, (_, i) => this.claim(id, `${name}-${i}-x`)));
  }
}
