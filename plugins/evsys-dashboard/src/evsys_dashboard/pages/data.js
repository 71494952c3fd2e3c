// Datasets and benchmarks: versions, rows, where they come from and what used them.

import { source } from "./api.js";
import { el, section } from "./dom.js";
import { bytes, number, plural, time } from "./format.js";
import { address } from "./route.js";
import { table } from "./table.js";

export async function data({ path }) {
  return path.length > 2 ? one(path) : all();
}

async function all() {
  const found = await source.get(["data"]);
  const list = (kind, rows) =>
    section(
      kind === "datasets" ? "Datasets" : "Benchmarks",
      table({
        name: kind,
        caption: `The ${kind} of this project`,
        rows,
        empty: `No ${kind} yet. They appear when an experiment uses one, or with \`evsys ${kind.slice(0, -1)} upload\`.`,
        columns: [
          { key: "name", label: "Name", head: true, value: (row) => row.name, cell: (row) => el("a", { href: address(["data", kind, row.id]) }, row.name ?? row.id) },
          { key: "id", label: "Version", value: (row) => row.id },
          { key: "rows", label: kind === "datasets" ? "Rows" : "Tasks", numeric: true, value: (row) => row.rows, cell: (row) => number(row.rows) },
          { key: "bytes", label: "Size", numeric: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
          { key: "used", label: "Experiments", numeric: true, value: (row) => row.experiments?.length },
          { key: "leaked", label: "Leaked tasks", numeric: true, value: (row) => row.leaked },
        ],
      }),
    );
  return { title: "Data", node: el("article", {}, el("h1", {}, "Data"), list("datasets", found.datasets), list("benchmarks", found.benchmarks)) };
}

async function one([, kind, id]) {
  const found = await source.get(["data", kind, id]);
  const columns = [...new Set((found.sample ?? []).flatMap((row) => Object.keys(row)))];
  const show = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return {
    title: found.name ?? id,
    node: el(
      "article",
      {},
      el("p", { class: "trail" }, el("a", { href: address(["data"]) }, "Data"), ` / ${found.name ?? id}`),
      el("h1", {}, found.name ?? id),
      el("p", { class: "soft" }, `${id}, ${plural(found.rows, "row")}${found.created ? `, since ${time(found.created)}` : ""}`),
      found.withheld && el("p", { class: "problem" }, found.withheld),
      section("Rows", table({ name: "rows", caption: `The first ${plural(found.sample?.length ?? 0, "row")}`, rows: found.sample ?? [], empty: "No rows can be shown.", columns: columns.map((key) => ({ key, label: key, value: (row) => (row[key] === undefined ? "" : show(row[key])) })) })),
      found.lineage && section("Lineage", el("pre", { class: "long", tabindex: "0" }, JSON.stringify(found.lineage, null, 2))),
      section("Used by", found.experiments?.length ? el("ul", {}, found.experiments.map((name) => el("li", {}, el("a", { href: address(["experiments", name]) }, name)))) : el("p", { class: "soft" }, "No experiment on record.")),
    ),
  };
}
