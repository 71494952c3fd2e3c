// Where pages get their data: the server's API, or in a report of one file the answers that were saved with it.

import { readable } from "./dom.js";
import { current, search } from "./route.js";

export class Failure extends Error {
  constructor(status, message, hint) {
    super(readable(message));
    this.status = status;
    this.hint = hint && readable(hint);
  }
}

const saved = document.getElementById("saved-answers");

// `["/", "keys"]` is the server's own, any other path one of the project that is shown.
function addressOf(path, query = {}) {
  const parts = path[0] === "/" ? path.slice(1) : ["projects", current().project, ...path];
  return parts.map(encodeURIComponent).join("/") + search(query);
}

class Server {
  features = new Set(["experiments", "compare", "memory", "data", "events", "log", "rollouts"]);
  token = null; // of a browser that signed in, for its changes

  async whoami() {
    const found = await this.get(["/", "whoami"]);
    this.token = found.token;
    return found;
  }

  // The projects that may be read here. It also tells which parts of the pages this server has.
  async projects() {
    const found = await this.get(["/", "projects"]);
    if (!found.local && this.token === null) await this.whoami();
    for (const [feature, there] of [["control", found.control], ["administration", !found.local]]) {
      if (there) this.features.add(feature);
      else this.features.delete(feature);
    }
    return found.projects;
  }

  has(feature) {
    return this.features.has(feature);
  }

  async get(path, query) {
    return this.#ask(addressOf(path, query));
  }

  async post(path, body, method = "POST") {
    const headers = { "Content-Type": "application/json", ...(this.token && { "X-CSRF-Token": this.token }) };
    return this.#ask(addressOf(path), { method, headers, body: JSON.stringify(body) });
  }

  async #ask(address, options = {}) {
    let answer;
    try {
      answer = await fetch(`/api/v1/${address}`, { credentials: "same-origin", ...options });
    } catch {
      throw new Failure(0, "The server doesn't answer.", "Start it again with `evsys dashboard`; this page continues from where it is.");
    }
    const body = answer.status === 204 ? null : await answer.json().catch(() => null);
    if (!answer.ok) throw new Failure(answer.status, body?.error?.message ?? `The server answers with status ${answer.status}.`, body?.error?.hint);
    return body;
  }

  // Call `changed` after each change since a version of the project, of an experiment or, with null, of any; `tell` says whether updates arrive.
  follow(experiment, after, changed, tell) {
    const stream = new EventSource(`/api/v1/${addressOf(["stream"], { after })}`);
    let waiting = null;
    stream.onopen = () => tell("live", true);
    stream.onerror = () => tell("connection lost, retrying");
    stream.addEventListener("change", (event) => {
      if (experiment && !JSON.parse(event.data).experiments.some((each) => each.id === experiment)) return;
      // At most one redraw a second, however fast lines arrive; never while someone types or reads a menu.
      waiting ??= setTimeout(() => {
        waiting = null;
        if (!document.activeElement?.matches("input, select, textarea")) changed();
      }, 1000);
    });
    return () => {
      stream.close();
      clearTimeout(waiting);
      tell("");
    };
  }
}

function picked(query, names) {
  return Object.fromEntries(names.filter((name) => (query[name] ?? null) !== null).map((name) => [name, query[name]]));
}

class Saved {
  constructor(text) {
    this.answers = JSON.parse(text);
    this.features = new Set(this.answers.features ?? []);
  }

  has(feature) {
    return this.features.has(feature);
  }

  async projects() {
    return this.answers["projects"].projects;
  }

  // Curves and rollouts were saved whole, by phase, and are chosen from here as the server would.
  async get(path, query = {}) {
    const whole = this.answers[addressOf(path)] ?? this.answers[addressOf(path, picked(query, ["phase"]))];
    const found = this.answers[addressOf(path, picked(query, ["left", "right", "benchmark", "task"]))] ?? this.answers[addressOf(path, picked(query, ["left", "right"]))] ?? whole;
    if (found === undefined) throw new Failure(404, "This report doesn't contain that page.", "Open the experiment in `evsys dashboard` to see everything.");
    const wanted = (name, value) => query[name] === null || query[name] === undefined || [query[name]].flat().map(String).includes(String(value));
    if (found.curves) return { ...found, curves: found.curves.filter((curve) => wanted("name", curve.name) && wanted("run", curve.run)) };
    if (!found.rollouts?.filter) return found;
    const within = ({ score }) => (query.low ?? null) === null && (query.high ?? null) === null ? true : score !== null && score >= Number(query.low ?? -Infinity) && score <= Number(query.high ?? Infinity);
    const rollouts = found.rollouts.filter((row) => ["benchmark", "task", "step"].every((name) => wanted(name, row[name])) && within(row));
    return { ...found, rollouts, total: rollouts.length };
  }

  follow() {
    return () => {};
  }
}

export const source = saved ? new Saved(saved.textContent) : new Server();
