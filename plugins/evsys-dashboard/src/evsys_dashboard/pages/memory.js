// What the experiments taught: what worked, what failed, what is open, and what rests on something retracted.

import { source } from "./api.js";
import { definitions, el, section } from "./dom.js";
import { duration, money, number, plural, signed, interval } from "./format.js";
import { address } from "./route.js";
import { table } from "./table.js";
import { marks } from "./verdict.js";

export async function memory() {
  const { context: found, tests, test_reads: reads } = await source.get(["memory"]);
  return {
    title: "Memory",
    follow: true,
    node: el(
      "article",
      {},
      el("h1", {}, "What is known"),
      found.about && el("p", { class: "prose" }, found.about),
      definitions([
        ["Experiments", number(found.experiments)],
        ["Runs", number(found.runs)],
        ["Verdicts", Object.entries(found.verdicts).map(([name, count]) => `${count} ${name}`).join(", ")],
        ["Spent", `${money(found.spent.cost_usd)}, ${duration(found.spent.seconds)}`],
      ]),
      best(found.best),
      entries("What worked", found.supported, "No claim is supported yet."),
      entries("Candidates, not confirmed", found.candidates),
      entries("Open questions", found.open, "No question is open."),
      entries("What didn't work", found.refuted),
      entries("How runs failed", found.failures),
      entries("Unfinished", found.unfinished),
      entries("Retracted", found.retracted),
      exposure(tests, reads),
      goals(found.goals),
      el("p", { class: "note" }, "`evsys context` prints the same for an agent."),
    ),
  };
}

function best(rows) {
  if (!rows?.length) return null;
  return section("Best so far", el("ul", {}, rows.map((row) => el("li", {}, named(row.name), " ", row.says ?? ""))));
}

function named(name) {
  const [id] = String(name).split("/");
  return el("a", { href: address(["experiments", id]) }, name);
}

// An entry names an experiment or an arm of one, and says the rest in words.
function entries(title, rows, empty) {
  if (!rows.length) return empty ? section(title, el("p", { class: "soft" }, empty)) : null;
  return section(title, el("ul", {}, rows.map((row) => el("li", {}, row.name && named(row.name), effect(row.effect), marks(row.marks), " ", row.says ?? rest(row)))));
}

function effect(value) {
  return Array.isArray(value) ? ` ${signed(value[0])} (${interval(value[1], value[2])})` : null;
}

function rest({ name, marks: _marks, effect: _effect, ...others }) {
  return Object.entries(others)
    .filter(([, value]) => value !== null && value !== "")
    .map(([key, value]) => `${key.replaceAll("_", " ")}: ${Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : value}`)
    .join("; ");
}

function exposure(tests, reads) {
  const read = Object.entries(reads);
  if (!tests.length && !read.length) return null;
  return section(
    "Exposure of final tests",
    read.length > 0 && el("ul", {}, read.map(([name, count]) => el("li", {}, el("a", { href: address(["data", "benchmarks", name]) }, name), `: its rows were read ${plural(count, "time")} from this server`))),
    table({
      name: "exposure",
      caption: "Experiments that were scored on the tasks of each final test, under whatever name",
      rows: tests,
      empty: "No experiment was scored on a final test.",
      columns: [
        { key: "name", label: "Benchmark", head: true, value: (row) => row.name },
        { key: "looks", label: "Experiments", numeric: true, value: (row) => row.experiments.length },
        { key: "experiments", label: "Which", value: (row) => row.experiments.join(", "), cell: (row) => row.experiments.map((id) => [el("a", { href: address(["experiments", id]) }, id), " "]) },
      ],
    }),
  );
}

function goals(found) {
  const rows = Object.entries(found ?? {});
  return rows.length ? section("Goals", el("ul", {}, rows.map(([name, count]) => el("li", {}, el("a", { href: address(["experiments"], { goal: name }) }, name), ` (${typeof count === "number" ? count : JSON.stringify(count)})`)))) : null;
}
