// One experiment: the verdict first, then the effects it rests on, then curves, cost and how it was made.

import { source } from "./api.js";
import { curves, forest, legend } from "./charts.js";
import { control } from "./control.js";
import { definitions, el, note, section } from "./dom.js";
import { age, brief, bytes, DASH, duration, interval, money, number, plural, score, signed, text, time } from "./format.js";
import { address, all } from "./route.js";
import { table } from "./table.js";
import { marks, outcomeBadge, statusBadge, tone, verdictBadge } from "./verdict.js";

const FIRST_CURVES = ["reward", "loss", "held_out_nll", "nll", "entropy", "kl", "accuracy", "grad_norm"];
const SHOWN_CURVES = 6;

export async function experiment({ path, query, redraw }) {
  const id = path[1];
  const at = ["experiments", id];
  const shown = await source.get(at);
  const { experiment: facts, conclusion, runs } = shown;
  const drawn = await curvesOf(at, shown, query);
  const live = facts.status === "running";
  return {
    title: facts.name,
    follow: live ? id : null,
    node: el(
      "article",
      {},
      el("h1", {}, facts.name ?? id),
      el("p", { class: "soft" }, statusBadge(facts.status), ` ${id}, started ${time(facts.moment)} UTC (${age(facts.moment)})`),
      facts.problem && el("p", { class: "problem" }, facts.problem),
      question(shown),
      verdict(shown),
      live && source.has("control") && (await control(id, runs, redraw)),
      warnings([...(conclusion?.warnings ?? []), ...shown.warnings]),
      effects(shown),
      arms(id, shown),
      pictures(id, shown, drawn, query),
      forgetting(conclusion),
      cost(shown),
      await events(at),
      configuration(shown),
      procedure(shown),
      lineage(shown),
      files(shown),
    ),
  };
}

// The curves to draw: those that the address names, otherwise the success metric and the best-known training metrics.
async function curvesOf(at, { series, experiment: { metric } }, query) {
  const known = Object.entries(series).flatMap(([phase, names]) => names.map((name) => ({ phase, name })));
  const chosen = query.getAll("metric");
  const success = (name) => metric !== null && name.replace(/^(val|test)\//, "").replaceAll("/", ".") === metric;
  const order = ({ phase, name }) => (phase === "training" ? FIRST_CURVES.indexOf(name) : success(name) ? -1 : FIRST_CURVES.length);
  const first = known.filter((each) => (each.phase === "training" ? order(each) >= 0 : success(each.name))).sort((a, b) => order(a) - order(b));
  const wanted = chosen.length ? known.filter((each) => chosen.includes(each.name)) : first.slice(0, SHOWN_CURVES);
  const phases = [...new Set(wanted.map((each) => each.phase))];
  const answers = await Promise.all(phases.map((phase) => source.get([...at, "curves"], { phase, name: wanted.filter((each) => each.phase === phase).map((each) => each.name) })));
  const found = answers.flatMap((answer) => answer.curves);
  const drawn = wanted.map(({ phase, name }) => ({ metric: name, curves: found.filter((curve) => curve.phase === phase && curve.name === name) }));
  // A score that was taken once is in the tables; as a curve it is a point on an empty picture.
  return chosen.length ? drawn : drawn.filter((each) => each.curves.some((curve) => curve.total > 1));
}

function question({ experiment: facts }) {
  const subject = facts.claim ? `${facts.claim.replace("_", " ")}${facts.margin ? ` by ${number(facts.margin)}` : ""}` : null;
  return el(
    "div",
    {},
    facts.hypothesis && el("p", { class: "prose" }, el("strong", {}, "Hypothesis: "), facts.hypothesis),
    facts.description && facts.description !== facts.hypothesis && el("p", { class: "prose soft" }, facts.description),
    definitions([
      ["Metric", facts.metric && `${facts.metric} (${facts.direction === "min" ? "lower" : "higher"} is better)`],
      ["Claim", subject],
      ["Baseline", facts.baseline],
      ["Tags", (facts.tags ?? []).join(", ")],
      ["Goal", facts.project_goal_id],
    ]),
  );
}

function verdict({ experiment: facts, conclusion }) {
  if (!conclusion?.verdict && !facts.verdict) {
    return el("div", { class: "verdict" }, el("p", { class: "line" }, facts.status === "running" ? "No verdict yet: the experiment is running." : "This experiment reached no verdict."));
  }
  const looks = conclusion?.looks;
  return el(
    "div",
    { class: `verdict ${tone(facts.verdict)}` },
    el("p", { class: "line" }, verdictBadge(facts.verdict), facts.subject && ` about this ${facts.subject}`, marks((facts.marks ?? []).map((mark) => mark.label))),
    el("p", {}, facts.reason),
    (facts.marks ?? []).map((mark) => el("p", { class: "note" }, el("strong", {}, `${mark.label}: `), mark.says)),
    looks && note(`Look ${looks.number} at this question, at a level of ${number(looks.level)} of the ${number(looks.alpha)} that all looks share.`),
    settling(facts),
    facts.retracted && el("p", { class: "bad" }, `Retracted ${time(facts.retracted_at)}: ${facts.retracted}`),
  );
}

function settling(facts) {
  if (!facts.settling_curve?.length) return facts.settle ? el("p", {}, `To settle it: ${text(facts.settle)}`) : null;
  const keys = Object.keys(facts.settling_curve[0]);
  return el(
    "details",
    {},
    el("summary", {}, "What would settle it"),
    table({
      name: "settling",
      caption: "Tasks and runs that would settle a given effect",
      rows: facts.settling_curve,
      empty: "",
      columns: keys.map((key) => ({ key, label: label(key), numeric: true, value: (row) => row[key], cell: (row) => number(row[key]) })),
    }),
  );
}

function warnings(found) {
  if (!found.length) return null;
  return section("Warnings", el("ul", { class: "warnings" }, [...new Set(found)].map((warning) => el("li", {}, warning))));
}

function effects({ experiment: facts, conclusion }) {
  const compared = facts.comparisons ?? [];
  const again = facts.confirmed;
  if (!compared.length && !again) return null;
  const rows = compared.map((each) => ({ ...each, name: `${each.arm} against ${facts.baseline}` }));
  const confirmed = again ? [{ ...again, name: `${again.arm}, retrained` }] : [];
  return section(
    "Effects",
    note(`Differences on ${facts.metric}, each with its interval. A filled mark is decided, an open one isn't.`),
    forest({ title: "Effect of each arm", rows: [...rows, ...confirmed], margin: signedMargin(facts) }),
    table({
      name: "effects",
      caption: "Effects and their tests",
      rows: [...rows, ...confirmed],
      empty: "",
      columns: [
        { key: "name", label: "Comparison", head: true, value: (row) => row.name },
        { key: "outcome", label: "Outcome", value: (row) => row.outcome, cell: (row) => outcomeBadge(row.outcome) },
        { key: "before", label: "Baseline", numeric: true, value: (row) => row.before, cell: (row) => score(row.before) },
        { key: "after", label: "Arm", numeric: true, value: (row) => row.after, cell: (row) => score(row.after) },
        { key: "effect", label: "Effect", numeric: true, value: (row) => row.effect, cell: (row) => signed(row.effect) },
        { key: "interval", label: "Interval", numeric: true, value: (row) => interval(row.low, row.high) },
        { key: "p", label: "p, corrected", numeric: true, value: (row) => row.p_corrected, cell: (row) => number(row.p_corrected, 3) },
        { key: "tasks", label: "Tasks", numeric: true, value: (row) => row.n_tasks },
        { key: "runs", label: "Runs", numeric: true, value: (row) => row.n_seeds },
        { key: "method", label: "Test", value: (row) => row.method },
      ],
    }),
    claims(conclusion),
  );
}

function signedMargin(facts) {
  const margin = facts.margin ?? facts.minimum_effect ?? 0;
  return facts.direction === "min" || facts.claim === "no_worse" || facts.claim === "worse" ? -margin : margin;
}

function claims(conclusion) {
  const tested = conclusion?.claims ?? [];
  if (!tested.length) return null;
  return el(
    "ul",
    {},
    tested.map((claim) =>
      el("li", {}, outcomeBadge(claim.outcome), ` ${claim.arm} is ${claim.claim.replace("_", " ")}${claim.margin ? ` (margin ${number(claim.margin)})` : ""} against ${claim.against}: p = ${number(claim.p_corrected ?? claim.p_value, 3)}, about the ${claim.subject}`),
    ),
  );
}

function arms(id, { experiment: facts, runs }) {
  const path = (run) => ["experiments", id, "runs", run];
  const best = facts.best_arm;
  return section(
    "Arms and runs",
    table({
      name: "runs",
      caption: "Every run of every arm",
      rows: runs,
      empty: "No run has started yet.",
      columns: [
        { key: "run", label: "Run", head: true, value: (row) => row.run_id, cell: (row) => [el("a", { href: address(path(row.run_id)) }, row.run_id), row.arm === best && " (best arm)"] },
        { key: "status", label: "Status", value: (row) => row.status, cell: (row) => statusBadge(row.status) },
        { key: "score", label: facts.metric ?? "Score", numeric: true, value: (row) => row.score, cell: (row) => score(row.score) },
        { key: "interval", label: "Interval", numeric: true, value: (row) => (typeof row.low === "number" ? `${score(row.low)} to ${score(row.high)}` : DASH) },
        { key: "steps", label: "Steps", numeric: true, value: (row) => row.steps },
        { key: "rows", label: "Rows", numeric: true, value: (row) => row.rows },
        { key: "recipe", label: "Recipe", value: (row) => [row.algorithm, row.model, row.backend].filter(Boolean).map(bare).join(", ") },
        { key: "seconds", label: "Time", numeric: true, value: (row) => row.seconds, cell: (row) => duration(row.seconds) },
        { key: "failure", label: "Failure", value: (row) => row.failure ?? "" },
        ...(source.has("compare") && facts.baseline ? [{ key: "compare", label: "Task by task", value: () => "", cell: (row) => facts.comparisons.some((each) => each.arm === row.arm) && el("a", { href: address(["compare"], { left: `${id}/${facts.baseline}`, right: `${id}/${row.arm}` }) }, `against ${facts.baseline}`) }] : []),
      ],
    }),
  );
}

function pictures(id, { series, runs }, drawn, query) {
  const known = Object.values(series).flat();
  if (!known.length) return section("Curves", el("p", { class: "empty" }, "Nothing has been measured yet."));
  const present = new Set(drawn.flatMap((each) => each.curves.map((curve) => curve.arm ?? curve.run)));
  const arms = [...new Set(runs.map((run) => run.label ?? run.run_id))].filter((arm) => present.has(arm));
  const metrics = drawn.map((each) => each.metric);
  const left = known.filter((name) => !metrics.includes(name));
  const add = (event) => {
    location.hash = address(["experiments", id], { ...all(query), metric: [...metrics, event.target.value] });
  };
  return section(
    "Curves",
    arms.length > 1 && legend(arms),
    el("div", { class: "charts" }, drawn.map(({ metric, curves: found }) => curves({ title: metric, curves: found, arms }))),
    left.length > 0 && el("label", {}, "Add a curve", el("select", { onchange: add }, el("option", { value: "" }, `${left.length} more`), left.map((name) => el("option", { value: name }, name)))),
  );
}

// Each row is a stage, each column a benchmark; a colour and a sign say whether it fell.
function forgetting(conclusion) {
  const found = conclusion?.forgetting ?? [];
  if (!found.length) return null;
  const cell = (matrix, row, column) => {
    const change = matrix.changes?.[row]?.[column];
    const low = matrix.change_low?.[row]?.[column];
    const high = matrix.change_high?.[row]?.[column];
    const lost = typeof high === "number" && high < 0;
    const gained = typeof low === "number" && low > 0;
    const value = matrix.values?.[row]?.[column];
    return el("td", { class: `number ${lost ? "cell-bad" : gained ? "cell-good" : ""}` }, score(value), typeof change === "number" && el("div", { class: "note" }, `${signed(change)} (${interval(low, high)})${lost ? " lost" : gained ? " gained" : ""}`));
  };
  return section(
    "Forgetting",
    found.map((matrix) =>
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": `Forgetting of ${matrix.arm}` },
        el(
          "table",
          {},
          el("caption", {}, `${matrix.arm}: score of each benchmark after each stage, and its change since it was learnt`),
          el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Benchmark"), (["before", ...matrix.stages]).map((stage) => el("th", { scope: "col", class: "number" }, String(stage))))),
          el("tbody", {}, matrix.benchmarks.map((name, row) => el("tr", {}, el("th", { scope: "row" }, name), (matrix.values?.[row] ?? []).map((_, column) => cell(matrix, row, column))))),
        ),
      ),
    ),
  );
}

function cost({ experiment: { usage, seconds }, conclusion }) {
  if (!usage) return null;
  const lost = conclusion?.cut_off;
  return section(
    "Cost",
    definitions([
      ["Money", `${money(usage.cost_usd)}${usage.unpriced ? `, and ${plural(usage.unpriced, "unpriced call")}` : ""}`],
      ["Wall time", duration(seconds)],
      ["Trained tokens", number(usage.trained_tokens)],
      ["Sampled tokens", number(usage.completion_tokens)],
      ["Prompt tokens", number(usage.prompt_tokens)],
      ["Lost to cut-off attempts", lost?.seconds ? `${duration(lost.seconds)}, ${money(lost.cost_usd)}` : null],
    ]),
  );
}

async function events(at) {
  if (!source.has("events")) return null;
  const { events: found } = await source.get([...at, "events"], { limit: 10000 });
  if (!found.length) return null;
  const newest = found.slice(-200).reverse();
  return section(
    "Events",
    el(
      "details",
      {},
      el("summary", {}, `The newest ${newest.length} of ${plural(found.length, "event")}`),
      el("ol", { class: "timeline" }, newest.map((event) => el("li", {}, el("time", {}, time(event.at)), el("span", {}, [event.event, event.run, brief(event.facts)].filter(Boolean).join(" · "))))),
    ),
  );
}

function configuration({ config, parent_config: before, experiment: facts }) {
  if (!config) return null;
  return section(
    "Configuration",
    before && [el("p", {}, "Compared with its parent ", el("a", { href: address(["experiments", facts.parent]) }, facts.parent), ":"), difference(before, config)],
    el("details", {}, el("summary", {}, "Experiment file"), el("pre", { class: "long", tabindex: "0" }, config)),
  );
}

function difference(before, after) {
  const lines = changes(before.split("\n"), after.split("\n"));
  if (!lines.length) return el("p", { class: "soft" }, "The files are equal.");
  return el("pre", { class: "long", tabindex: "0" }, lines.map(([sign, line]) => el("span", { class: sign === "+" ? "good" : "bad" }, `${sign} ${line}\n`)));
}

// The lines that one file has and the other hasn't, in order: the longest common subsequence is left out.
function changes(before, after) {
  const length = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      length[i][j] = before[i] === after[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const found = [];
  for (let i = 0, j = 0; i < before.length || j < after.length; ) {
    if (i < before.length && j < after.length && before[i] === after[j]) [i, j] = [i + 1, j + 1];
    else if (j === after.length || (i < before.length && length[i + 1][j] >= length[i][j + 1])) found.push(["−", before[i++]]);
    else found.push(["+", after[j++]]);
  }
  return found;
}

function procedure({ conclusion, experiment: facts }) {
  const used = conclusion?.procedure;
  if (!used) return null;
  return section(
    "Procedure",
    definitions([...Object.entries(used).map(([name, value]) => [label(name), typeof value === "number" ? number(value) : text(value)]), ["Correction", conclusion.correction], ["Configuration hash", facts.config_hash]]),
  );
}

function lineage({ experiment: facts, children }) {
  const link = (id) => el("li", {}, el("a", { href: address(["experiments", id]) }, id));
  const before = [...new Set([facts.parent, ...facts.cites].filter(Boolean))];
  if (!before.length && !children.length) return null;
  return section("Lineage", before.length > 0 && [el("h3", {}, "Builds on"), el("ul", {}, before.map(link))], children.length > 0 && [el("h3", {}, "Built upon by"), el("ul", {}, children.map(link))]);
}

function files({ files: found }) {
  if (!found.length) return null;
  return section("Files", el("details", {}, el("summary", {}, plural(found.length, "file")), el("ul", {}, found.map((file) => el("li", {}, `${file.file} (${bytes(file.size)})`)))));
}

// A plugin's name without its owner, which the run's page has.
function bare(name) {
  return name.replace(/^evsys-[a-z-]+\//, "");
}

export function label(key) {
  const words = key.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}
