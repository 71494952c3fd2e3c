// All experiments: what each asked, and what it came to.

import { source } from "./api.js";
import { el, note } from "./dom.js";
import { age, interval, money, plural, signed, time } from "./format.js";
import { address } from "./route.js";
import { table } from "./table.js";
import { marks, statusBadge, verdictBadge } from "./verdict.js";

const FILTERS = ["text", "verdict", "status", "tag", "goal", "plugin", "model"];
const PART = 200;

export async function experiments({ query }) {
  const asked = Object.fromEntries(FILTERS.map((name) => [name, query.get(name)]));
  const limit = Number(query.get("limit")) || PART;
  const found = await source.get(["experiments"], { ...asked, sort: query.get("sort"), limit });
  const filtered = FILTERS.some((name) => asked[name]);
  const more = found.total - found.experiments.length;
  return {
    title: "Experiments",
    follow: true,
    node: el(
      "div",
      {},
      el("h1", {}, "Experiments"),
      filters(asked, query.get("sort"), found),
      note(found.total === found.experiments.length ? plural(found.total, "experiment") : `${found.experiments.length} of ${plural(found.total, "experiment")}`),
      list(found.experiments, filtered),
      more > 0 && el("p", {}, el("a", { href: address(["experiments"], { ...asked, sort: query.get("sort"), limit: limit + PART }) }, `Show ${Math.min(more, PART)} more`)),
    ),
  };
}

function filters(asked, sort, found) {
  const go = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget.form ?? event.currentTarget);
    location.hash = address(["experiments"], Object.fromEntries(form));
  };
  const choice = (name, label, options) =>
    options?.length || asked[name]
      ? el("label", {}, label, select(name, asked[name], ["", ...new Set([...(options ?? []), asked[name]].filter(Boolean))], go))
      : null;
  return el(
    "form",
    { class: "filters", role: "search", onsubmit: go },
    el("label", {}, "Search", el("input", { type: "search", name: "text", value: asked.text ?? "", placeholder: "hypothesis, name, conclusion" })),
    choice("verdict", "Verdict", found.facets?.verdict),
    choice("status", "Status", found.facets?.status),
    choice("tag", "Tag", found.facets?.tag),
    choice("goal", "Goal", found.facets?.goal),
    choice("plugin", "Plugin", found.facets?.plugin),
    choice("model", "Model", found.facets?.model),
    el("label", {}, "Order", select("sort", sort, [["", "newest first"], ["oldest", "oldest first"], ["effect", "largest effect first"], ["cost", "dearest first"], ["name", "name"]], go)),
    el("button", { type: "submit" }, "Search"),
    Object.values(asked).some(Boolean) && el("a", { href: address(["experiments"]) }, "Clear"),
  );
}

function select(name, chosen, options, onchange) {
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option || "any"]));
  return el("select", { name, onchange }, pairs.map(([value, label]) => el("option", { value, selected: value === (chosen ?? "") }, label)));
}

function list(rows, filtered) {
  return table({
    name: "experiments",
    caption: "Experiments and their verdicts",
    sortable: false,
    rows,
    empty: filtered ? "No experiment matches these filters. Clear them to see all." : "There are no experiments yet. Run one with `evsys run config.yaml`; it appears here while it runs.",
    columns: [
      { key: "name", label: "Experiment", head: true, value: (row) => row.id, cell: nameCell },
      { key: "verdict", label: "Verdict", value: (row) => row.verdict, cell: (row) => [row.verdict || row.status === "completed" ? verdictBadge(row.verdict) : statusBadge(row.status), marks(row.marks.map((mark) => mark.label))] },
      { key: "hypothesis", label: "Hypothesis", value: (row) => row.hypothesis },
      { key: "effect", label: "Effect", numeric: true, value: (row) => row.effect, cell: (row) => signed(row.effect) },
      { key: "interval", label: "Interval", numeric: true, value: (row) => interval(row.low, row.high) },
      { key: "cost", label: "Cost", numeric: true, value: (row) => row.cost_usd, cell: (row) => money(row.cost_usd) },
      { key: "moment", label: "Started", value: (row) => row.moment, cell: (row) => el("time", { datetime: row.moment, title: time(row.moment) }, age(row.moment)) },
    ],
  });
}

function nameCell(row) {
  return [el("a", { href: address(["experiments", row.id]) }, row.name ?? row.id), row.tags?.length ? el("div", { class: "note" }, row.tags.join(", ")) : null];
}
