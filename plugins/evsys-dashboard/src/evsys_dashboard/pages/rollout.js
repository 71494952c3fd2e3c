// The rollouts of a run, and one of them as a conversation with its score.

import { source } from "./api.js";
import { definitions, el, note, section } from "./dom.js";
import { DASH, duration, number, plural, score } from "./format.js";
import { address } from "./route.js";
import { table } from "./table.js";

const PART = 100;

export async function rollout({ path, query }) {
  const [, id, , name, , phase, place] = path;
  return place === undefined ? list(id, name, query) : one(id, name, phase, place);
}

async function list(id, name, query) {
  const at = ["experiments", id, "runs", name, "rollouts"];
  const asked = Object.fromEntries(["phase", "benchmark", "task", "step", "low", "high", "after"].map((key) => [key, query.get(key)]));
  const found = await source.get(at, { ...asked, limit: PART });
  const filter = [asked.phase ?? "training", asked.benchmark, asked.task, asked.step && `step ${asked.step}`].filter(Boolean).join(", ");
  return {
    title: `Rollouts of ${name}`,
    node: el(
      "article",
      {},
      trail(id, name, "rollouts"),
      el("h1", {}, `Rollouts of ${name}`),
      note(`${plural(found.total, "rollout")}: ${filter}`),
      el("p", {}, [["lowest scores", { high: 0 }], ["full marks", { low: 1 }], ["all scores", {}]].map(([text, bounds]) => [el("a", { href: address(at, { ...asked, low: null, high: null, after: null, ...bounds }) }, text), " "])),
      table({
        name: "rollouts",
        caption: "Rollouts with their scores",
        rows: found.rollouts,
        empty: "No rollout is on record here: none matches, or they were thinned.",
        columns: [
          { key: "task", label: "Task", head: true, value: (row) => row.task, cell: (row) => el("a", { href: address([...at, row.phase, String(row.place)]) }, row.task || `rollout ${row.place}`) },
          { key: "benchmark", label: "Benchmark", value: (row) => row.benchmark ?? "training" },
          { key: "step", label: "Step", numeric: true, value: (row) => row.step },
          { key: "score", label: "Score", numeric: true, value: (row) => row.score, cell: (row) => (row.score === null ? (row.reason ?? "no score") : score(row.score)) },
          { key: "output", label: "Answer", value: (row) => row.output ?? row.error ?? DASH },
          { key: "cut", label: "Cut off", value: (row) => cutOff(row) },
        ],
      }),
      el("p", {}, asked.after && el("a", { href: address(at, { ...asked, after: null }) }, "From the start"), " ", found.next !== null && el("a", { href: address(at, { ...asked, after: found.next }) }, "Next")),
    ),
  };
}

function cutOff({ truncated, timed_out: late }) {
  return [truncated && "at the token limit", late && "at the time limit"].filter(Boolean).join(", ");
}

async function one(id, name, phase, place) {
  const at = ["experiments", id, "runs", name, "rollouts"];
  const { row, line, texts, previous, next } = await source.get([...at, phase, place]);
  const made = line.rollout;
  const turn = (to, text) => to !== null && el("a", { href: address([...at, phase, String(to)]) }, text);
  return {
    title: `${row.task || "Rollout"} of ${name}`,
    node: el(
      "article",
      {},
      trail(id, name, "rollouts", row.task || place),
      el("h1", {}, row.task || `Rollout ${place}`),
      el("p", {}, turn(previous, "Previous"), " ", turn(next, "Next")),
      definitions([
        ["Benchmark", row.benchmark ?? "training"],
        ["Step", row.step],
        ["Score", row.score === null ? (row.reason ?? "none") : score(row.score)],
        ["Error", row.error],
        ["Cut off", cutOff(row)],
        ["Tokens", made.usage && `${number(made.usage.prompt_tokens)} read, ${number(made.usage.completion_tokens)} written`],
        ["Time", duration(made.usage?.seconds)],
      ]),
      parts(made.score),
      section("Conversation", conversation(made)),
      tokens(made, texts),
    ),
  };
}

function trail(id, name, ...rest) {
  const run = ["experiments", id, "runs", name];
  return el("p", { class: "trail" }, el("a", { href: address(["experiments", id]) }, id), " / ", el("a", { href: address(run) }, name), " / ", rest.length > 1 ? [el("a", { href: address([...run, "rollouts"]) }, rest[0]), ` / ${rest[1]}`] : rest[0]);
}

function parts(scored) {
  const components = Object.entries(scored?.components ?? {});
  const details = Object.entries(scored?.metadata ?? {});
  if (!components.length && !details.length) return null;
  return section("Score", definitions([...components.map(([name, value]) => [name, number(value)]), ...details.map(([name, value]) => [name, typeof value === "object" ? JSON.stringify(value) : String(value)])]));
}

export function conversation({ messages }) {
  return (messages ?? []).map(message);
}

function message(said) {
  return el(
    "div",
    { class: "message" },
    el("header", {}, el("strong", {}, said.role), said.name),
    said.reasoning && el("details", {}, el("summary", {}, "Reasoning"), el("pre", { class: "long", tabindex: "0" }, said.reasoning)),
    content(said.content),
    (said.tool_calls ?? []).map((call) => el("pre", {}, `${call.function?.name ?? call.name}(${call.function?.arguments ?? JSON.stringify(call.arguments ?? {})})`)),
  );
}

function content(parts) {
  if (parts === null || parts === undefined) return null;
  if (typeof parts === "string") return el("pre", { class: parts ? null : "soft" }, parts || "(empty)");
  return parts.map((part) => el("pre", {}, part.text ?? JSON.stringify(part)));
}

// Each sampled token, underlined by how unlikely it was; the table has the numbers for those who can't see the shade.
function tokens({ turns }, texts) {
  const sampled = (turns ?? []).map((turn, place) => ({ ...turn, pieces: texts[place] })).filter((turn) => turn.tokens?.length && turn.logprobs?.length);
  if (!sampled.length) return null;
  return section("Token logprobs", note("The stronger the line beneath a token, the less likely it was."), sampled.map(tokensOf));
}

function tokensOf({ tokens: ids, logprobs, pieces }) {
  const rows = ids.map((id, index) => ({ id, text: pieces?.[index] ?? String(id), logprob: logprobs[index] }));
  const shade = (logprob) => Math.round(Math.min(1, -(logprob ?? 0) / 5) * 100);
  const span = (row) => el("span", { title: number(row.logprob), style: { borderBottomColor: `color-mix(in srgb, var(--bad) ${shade(row.logprob)}%, transparent)` } }, row.text);
  return [
    el("p", { class: "tokens prose" }, rows.map((row) => [span(row), pieces ? "" : " "])),
    el(
      "details",
      {},
      el("summary", {}, plural(rows.length, "token")),
      table({
        name: "tokens",
        caption: "Tokens with their logprobs",
        sortable: false,
        rows,
        empty: "",
        columns: [
          { key: "text", label: "Token", head: true, value: (row) => row.text },
          { key: "id", label: "ID", numeric: true, value: (row) => row.id },
          { key: "logprob", label: "Logprob", numeric: true, value: (row) => row.logprob, cell: (row) => number(row.logprob) },
        ],
      }),
    ),
  ];
}
