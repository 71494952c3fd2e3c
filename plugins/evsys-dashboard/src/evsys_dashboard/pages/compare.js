// Two runs task by task: where one won, where it lost, and what changed, with both transcripts beside each other.

import { source } from "./api.js";
import { definitions, el, note, section } from "./dom.js";
import { interval, number, plural, score, signed } from "./format.js";
import { address, all } from "./route.js";
import { conversation } from "./rollout.js";
import { table } from "./table.js";

const CHANGES = [["won", "won"], ["lost", "lost"], ["changed", "with another answer and the same score"], ["same", "unchanged"]];
const SIGN = { won: "✓ won", lost: "✗ lost", changed: "≈ changed", same: "same" };

export async function compare({ query }) {
  const [left, right] = [query.get("left"), query.get("right")];
  const [listed, found] = await Promise.all([
    source.get(["experiments"], { limit: 200 }),
    left && right ? source.get(["comparison"], asked(query)) : null,
  ]);
  return {
    title: "Compare",
    node: el(
      "article",
      {},
      el("h1", {}, "Compare task by task"),
      choose(listed.experiments, query, found),
      found ? await result(found, query) : el("p", { class: "empty" }, "Choose two sides that were scored on the same benchmark: an experiment with one of its arms or runs, such as 20260101-120000-faq/lr-0.01."),
    ),
  };
}

function asked(query) {
  return Object.fromEntries(["left", "right", "benchmark", "margin"].map((name) => [name, query.get(name)]));
}

function choose(experiments, query, found) {
  const go = (event) => {
    event.preventDefault();
    location.hash = address(["compare"], Object.fromEntries(new FormData(event.currentTarget.form ?? event.currentTarget)));
  };
  const names = experiments.flatMap((row) => [row.baseline, row.best_arm].filter(Boolean).map((arm) => `${row.id}/${arm}`));
  const side = (name, label) => el("label", {}, label, el("input", { name, list: "sides", required: true, size: 44, value: query.get(name) ?? "" }));
  const entries = found?.benchmarks ?? [];
  return el(
    "form",
    { class: "filters", onsubmit: go },
    el("datalist", { id: "sides" }, [...new Set(names)].map((value) => el("option", { value }))),
    side("left", "First"),
    side("right", "Second"),
    entries.length > 1 && el("label", {}, "Benchmark", el("select", { name: "benchmark", onchange: go }, entries.map((name) => el("option", { value: name, selected: name === found.benchmark }, name)))),
    el("label", {}, "Equal within", el("input", { name: "margin", type: "number", min: 0, step: "any", value: query.get("margin") ?? "" })),
    el("button", { type: "submit" }, "Compare"),
  );
}

async function result(found, query) {
  const count = (change) => found.tasks.filter((row) => row.change === change).length;
  const only = query.get("change");
  const rows = only ? found.tasks.filter((row) => row.change === only) : found.tasks;
  const here = (changes) => address(["compare"], { ...all(query), ...changes });
  const unpaired = found.only_left + found.only_right;
  return [
    found.problem && el("p", { class: "problem" }, found.problem),
    found.benchmark &&
      definitions([
        ["Benchmark", `${found.benchmark} (${found.lower_is_better ? "lower" : "higher"} is better)`],
        ["Difference", `${signed(found.effect)} (${interval(found.low, found.high)}), second minus first, on ${plural(found.tasks.length, "task")}`],
        ["No difference", found.p_value === null ? null : `p = ${number(found.p_value, 3)}, ${found.method}`],
        ["Equal within the margin", found.equal_p === null ? null : `p = ${number(found.equal_p, 3)}, margin ${number(found.margin)}: ${found.equal_p <= 0.05 ? "shown" : "not shown"}`],
        ["Scored on one side only", unpaired ? plural(unpaired, "task") : null],
      ]),
    found.tasks.length > 0 && [
      el("p", {}, "The second side: ", CHANGES.map(([change, text]) => [el("a", { href: here({ change: only === change ? null : change }), "aria-current": only === change ? "true" : null }, `${count(change)} ${text}`), ", "]), el("a", { href: here({ change: null }) }, `${found.tasks.length} in all`)),
      query.get("task") && (await transcripts(found, query)),
      table({
        name: "tasks",
        caption: "Tasks, with the score of each side",
        rows,
        empty: "No task is like that.",
        columns: [
          { key: "task", label: "Task", head: true, value: (row) => row.task, cell: (row) => el("a", { href: here({ task: row.task }) }, row.task) },
          { key: "change", label: "Second side", value: (row) => row.change, cell: (row) => SIGN[row.change] },
          { key: "left", label: "First", numeric: true, value: (row) => row.left, cell: (row) => score(row.left) },
          { key: "right", label: "Second", numeric: true, value: (row) => row.right, cell: (row) => score(row.right) },
        ],
      }),
    ],
  ];
}

async function transcripts(found, query) {
  const task = query.get("task");
  const sides = await source.get(["comparison", "task"], { left: query.get("left"), right: query.get("right"), benchmark: found.benchmark, task });
  const one = ({ run, rollout }) => [note(`${run}, score ${rollout.score ? score(rollout.score.value) : "none"}`), conversation(rollout)];
  const side = (title, rollouts) => el("div", {}, el("h3", {}, title), rollouts.length ? rollouts.map(one) : el("p", { class: "empty" }, "No rollout of this task is on record."));
  return section(`Task ${task}`, el("div", { class: "beside" }, side(`First: ${found.left}`, sides.left), side(`Second: ${found.right}`, sides.right)));
}
