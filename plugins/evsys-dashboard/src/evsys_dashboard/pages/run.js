// One run: its curves, evaluations, attempts and rollouts.

import { source } from "./api.js";
import { curves } from "./charts.js";
import { definitions, el, section } from "./dom.js";
import { brief, bytes, DASH, duration, money, number, plural, score, time } from "./format.js";
import { address } from "./route.js";
import { table } from "./table.js";
import { statusBadge } from "./verdict.js";

const PHASES = ["training", "validation", "test"];

export async function run({ path }) {
  const [, id, , name] = path;
  const at = ["experiments", id, "runs", name];
  const shown = await source.get(at);
  const { run: past } = shown;
  const measured = PHASES.filter((phase) => shown.series.some((each) => each.phase === phase));
  const [log, ...answers] = await Promise.all([
    source.has("log") ? source.get([...at, "log"], { limit: 200 }) : { lines: [] },
    ...measured.map((phase) => source.get(["experiments", id, "curves"], { phase, run: name })),
  ]);
  return {
    title: past.label ?? name,
    follow: ["running", "waiting"].includes(past.status) ? id : null,
    node: el(
      "article",
      {},
      el("p", { class: "trail" }, el("a", { href: address(["experiments", id]) }, id), ` / ${name}`),
      el("h1", {}, past.label ?? name),
      el("p", {}, statusBadge(past.status)),
      past.failure && el("div", { class: "problem" }, el("p", {}, past.failure), el("p", { class: "soft" }, [past.error_type, past.place, past.plugin].filter(Boolean).join(", "))),
      facts(past),
      pictures(answers.flatMap((answer) => answer.curves).filter((curve) => curve.total > 1 || curve.phase === "training")),
      evaluations(id, name, shown),
      breakdowns(shown),
      rollouts(at, shown),
      attempts(shown),
      checkpoints(shown),
      dataIn(shown),
      lines(log),
    ),
  };
}

function facts(past) {
  return definitions([
    ["Algorithm", past.algorithm],
    ["Model", past.model],
    ["Backend", past.backend],
    ["Seed", past.seed],
    ["Steps", number(past.steps)],
    ["Rows trained on", number(past.rows)],
    ["Time", duration(past.seconds)],
    ["Cost", money(past.usage?.cost_usd)],
    ["Identity", past.identity],
  ]);
}

function pictures(found) {
  if (!found.length) return section("Curves", el("p", { class: "empty" }, "Nothing has been measured yet."));
  const names = [...new Set(found.map((curve) => curve.name))];
  const arms = [found[0].arm ?? found[0].run];
  return section("Curves", el("div", { class: "charts" }, names.map((name) => curves({ title: name, curves: found.filter((curve) => curve.name === name), arms }))));
}

function evaluations(id, name, { result }) {
  const rows = (result?.evaluations ?? []).flatMap(({ metrics, ...evaluation }) => Object.entries(metrics).map(([metric, value]) => ({ ...evaluation, ...value, metric })));
  const all = (row) => address(["experiments", id, "runs", name, "rollouts"], { phase: phaseOf(row), benchmark: row.benchmark, step: row.step });
  return section(
    "Evaluations",
    table({
      name: "evaluations",
      caption: "Scores by benchmark, step and metric",
      rows,
      empty: "The scores of a run that hasn't ended are in its curves.",
      columns: [
        { key: "benchmark", label: "Benchmark", head: true, value: (row) => row.benchmark, cell: (row) => (source.has("rollouts") ? el("a", { href: all(row) }, row.benchmark) : row.benchmark) },
        { key: "split", label: "Split", value: (row) => row.split },
        { key: "step", label: "Step", numeric: true, value: (row) => row.step },
        { key: "metric", label: "Metric", value: (row) => row.metric },
        { key: "value", label: "Score", numeric: true, value: (row) => row.value, cell: (row) => score(row.value) },
        { key: "interval", label: "Interval", numeric: true, value: (row) => (typeof row.low === "number" ? `${score(row.low)} to ${score(row.high)}` : DASH) },
        { key: "n", label: "Tasks", numeric: true, value: (row) => row.n },
        { key: "why", label: "Note", value: (row) => row.reason ?? row.failure?.message ?? "" },
      ],
    }),
  );
}

function phaseOf({ split }) {
  return split === "test" ? "test" : "validation";
}

function breakdowns({ result }) {
  const rows = (result?.evaluations ?? []).flatMap(({ benchmark, step, breakdown }) =>
    Object.entries(breakdown ?? {}).flatMap(([by, groups]) => Object.entries(groups).map(([group, value]) => ({ benchmark, step, by, group, ...value }))),
  );
  if (!rows.length) return null;
  const extra = Object.keys(rows[0]).filter((key) => typeof rows[0][key] === "number" && key !== "step");
  return section(
    "Breakdowns",
    table({
      name: "breakdowns",
      caption: "Scores by group of tasks",
      rows,
      empty: "",
      columns: [
        ...["benchmark", "by", "group"].map((key) => ({ key, label: key[0].toUpperCase() + key.slice(1), head: key === "benchmark", value: (row) => row[key] })),
        { key: "step", label: "Step", numeric: true, value: (row) => row.step },
        ...extra.map((key) => ({ key, label: key.replaceAll("_", " "), numeric: true, value: (row) => row[key], cell: (row) => number(row[key]) })),
      ],
    }),
  );
}

function rollouts(at, { rollouts: counts }) {
  const phases = PHASES.filter((phase) => counts[phase]);
  if (!source.has("rollouts") || !phases.length) return null;
  return section("Rollouts", el("ul", {}, phases.map((phase) => el("li", {}, el("a", { href: address([...at, "rollouts"], { phase }) }, `${plural(counts[phase], "rollout")} in ${phase}`)))));
}

function attempts({ attempts: found }) {
  return section(
    "Attempts",
    el("ol", { class: "timeline" }, found.map((attempt) => el("li", {}, el("time", {}, time(attempt.started)), el("span", {}, `Attempt ${attempt.n}: ${attempt.reason ?? "start"} from step ${attempt.from_step ?? 0}`)))),
  );
}

function checkpoints({ checkpoints: saved }) {
  if (!saved.length) return null;
  return section(
    "Checkpoints",
    table({
      name: "checkpoints",
      caption: "Checkpoints, as they were saved",
      rows: saved,
      empty: "",
      columns: [
        { key: "name", label: "Checkpoint", head: true, value: (row) => row.name ?? row.problem },
        { key: "step", label: "Step", numeric: true, value: (row) => row.step },
        { key: "bytes", label: "Size", numeric: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
        { key: "time", label: "Saved", value: (row) => row.time, cell: (row) => time(row.time) },
      ],
    }),
  );
}

function dataIn({ facts: { data } }) {
  if (!data) return null;
  return section("Data in", definitions([["Rows", number(data.rows)], ["Dropped", Object.entries(data.dropped ?? {}).map(([why, count]) => `${count} ${why}`).join(", ")], ["Fingerprint", data.fingerprint]]), data.lineage && el("details", {}, el("summary", {}, "Lineage"), el("pre", { class: "long", tabindex: "0" }, JSON.stringify(data.lineage, null, 2))));
}

function lines({ lines: found }) {
  if (!found.length) return null;
  const line = ({ values: { level = "info", event, time: at, attempt, seq, run_id, arm, ...rest } }) =>
    el("li", {}, el("time", {}, time(at)), el("span", { class: { error: "bad", warning: "doubt" }[level] }, `${level}: ${event} · ${brief(rest)}`));
  return section("Log", el("details", {}, el("summary", {}, `The newest ${plural(found.length, "line")}`), el("ol", { class: "timeline" }, [...found].reverse().map(line))));
}
