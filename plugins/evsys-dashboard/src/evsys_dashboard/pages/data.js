// Datasets and benchmarks by ID: their versions, rows, lineage, and benchmark tasks among training rows.

import { source } from "./api.js";
import { definitions, el, note, replace, section } from "./dom.js";
import { bytes, number, plural, text, time } from "./format.js";
import { address } from "./route.js";
import { table } from "./table.js";

const PAGE = 50;
const MOST_COLUMNS = 12;
const CUT = 500;
const KINDS = { datasets: "dataset", benchmarks: "benchmark" };

export async function data({ path, query }) {
  const [, kind, ref] = path;
  if (!kind) return overview();
  return version(kind, ref, query);
}

async function overview() {
  const found = await Promise.all(Object.keys(KINDS).map((kind) => source.get(["data", kind], { limit: 1000 })));
  return {
    title: "Data",
    node: el("article", {}, el("h1", {}, "Data"), found.map(names)),
  };
}

function names({ kind, names: rows, total }) {
  const title = kind[0].toUpperCase() + kind.slice(1);
  const how = kind === "datasets" ? "`evsys dataset upload NAME FILE`" : "`evsys benchmark upload NAME PATH`";
  return section(
    title,
    table({
      name: kind,
      caption: `${title} on this server, with the latest version of each`,
      rows,
      empty: `There are no ${kind} here. Send one to a team's server with ${how}.`,
      columns: [
        { key: "name", label: "Name", head: true, value: (row) => row.name, cell: (row) => link(kind, row.latest.id, row.name) },
        { key: "versions", label: "Versions", numeric: true, value: (row) => row.versions },
        { key: "latest", label: "Latest", value: (row) => row.latest.id },
        { key: "rows", label: kind === "datasets" ? "Rows" : "Tasks", numeric: true, value: (row) => row.latest.rows, cell: (row) => number(row.latest.rows) },
        { key: "size", label: "Size", numeric: true, value: (row) => row.latest.size, cell: (row) => bytes(row.latest.size) },
        { key: "split", label: "Split", value: (row) => row.latest.split, cell: (row) => split(row.latest.split) },
        { key: "created", label: "Uploaded", value: (row) => row.latest.created, cell: (row) => time(row.latest.created) },
      ],
    }),
    total > rows.length && note(`The first ${rows.length} of ${total} are listed.`),
  );
}

async function version(kind, ref, query) {
  const place = ["data", kind, ref];
  const shown = await source.get(place);
  const { version: found } = shown;
  const [{ versions }, rows] = await Promise.all([source.get(["data", kind, found.name, "versions"]), rowsOf(shown, query)]);
  return {
    title: found.id,
    node: el(
      "article",
      {},
      el("p", { class: "trail" }, el("a", { href: address(["data"]) }, "Data"), ` / ${kind}`),
      el("h1", {}, found.name, " ", split(found.split)),
      definitions([
        ["ID", el("code", {}, found.id)],
        ["Version", found.id === shown.latest ? `${found.number}, the latest` : [`${found.number}; the latest is `, link(kind, shown.latest)]],
        [kind === "datasets" ? "Rows" : "Tasks", number(found.rows)],
        ["Size", bytes(found.size)],
        ["Hash", el("code", {}, found.content_hash)],
        ["Uploaded", `${time(found.created)}${found.key ? ` with ${found.key}…` : ""}`],
        ["File", found.file],
        ["Note", found.note],
        ["Reads of its rows", shown.reads === null ? null : number(shown.reads)],
      ]),
      note("Name it in an experiment file with ", el("code", {}, kind === "datasets" ? `dataset_id: ${found.id}` : `id: ${found.id}`), " and ", el("code", {}, "data_store: {kind: evsys}"), "."),
      list(kind, found.id, versions),
      lineage(shown),
      contamination(place, kind),
      section("Rows", rows ?? sealed(shown)),
    ),
  };
}

function list(kind, own, rows) {
  return section(
    "Versions",
    table({
      name: "versions",
      caption: "Versions of this name, the newest first",
      rows,
      empty: "",
      columns: [
        { key: "number", label: "Version", numeric: true, value: (row) => row.number },
        { key: "id", label: "ID", head: true, value: (row) => row.id, cell: (row) => (row.id === own ? el("strong", {}, row.id, " (shown)") : link(kind, row.id)) },
        { key: "rows", label: "Rows", numeric: true, value: (row) => row.rows, cell: (row) => number(row.rows) },
        { key: "created", label: "Uploaded", value: (row) => row.created, cell: (row) => time(row.created) },
        { key: "made_from", label: "Made from", value: (row) => row.made_from.join(", ") },
        { key: "note", label: "Note", value: (row) => row.note },
      ],
    }),
  );
}

function lineage({ version: found, made_into: into, used_by: used }) {
  const versions = (ids) => (ids.length ? el("ul", {}, ids.map((id) => el("li", {}, el("code", {}, id)))) : null);
  return section(
    "Lineage",
    definitions([["Made from", versions(found.made_from)], ["Made into", versions(into)]]),
    table({
      name: "uses",
      caption: "Experiments that used this version",
      rows: used,
      empty: "No experiment on this server used this version yet.",
      columns: [
        { key: "experiment", label: "Experiment", head: true, value: (row) => row.experiment, cell: (row) => el("a", { href: address(["experiments", row.experiment]) }, row.experiment) },
        { key: "verdict", label: "Verdict", value: (row) => row.verdict },
        { key: "moment", label: "Began", value: (row) => row.moment, cell: (row) => time(row.moment) },
      ],
    }),
  );
}

function contamination(place, kind) {
  const result = el("div", { role: "status" });
  const check = async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    replace(result, el("p", { class: "soft" }, "Checking…"));
    try {
      replace(result, checked((await source.get([...place, "checks"])).checks, kind));
    } catch (error) {
      replace(result, el("p", { class: "bad" }, error.message));
    }
    button.disabled = false;
  };
  return section(
    "Contamination",
    note(kind === "datasets" ? "Looks for the tasks of each benchmark's latest version among these rows, as `evsys data check` does." : "Looks for these tasks among the rows of each dataset's latest version, as `evsys data check` does."),
    el("p", {}, el("button", { type: "button", onclick: check }, "Check for leaked tasks")),
    result,
  );
}

function checked(rows, kind) {
  const other = kind === "datasets" ? "benchmark" : "dataset";
  return table({
    name: "contamination",
    caption: "Benchmark tasks found among training rows, equal or nearly equal",
    rows,
    empty: `There is no ${other} to compare with.`,
    columns: [
      { key: "other", label: other[0].toUpperCase() + other.slice(1), head: true, value: (row) => row[other], cell: (row) => link(`${other}s`, row[other]) },
      { key: "checked", label: "Tasks", numeric: true, value: (row) => row.checked },
      { key: "flagged", label: "Found", numeric: true, value: (row) => (row.problem ? null : row.flagged), cell: (row) => (row.problem ? null : el("span", { class: row.flagged ? "bad" : "good" }, `${row.flagged ? "✗" : "✓"} ${row.flagged}`)) },
      { key: "matches", label: "How", value: (row) => row.problem ?? Object.entries(row.matches).map(([how, count]) => `${count} ${how}`).join(", ") },
      { key: "tasks", label: "Which", value: (row) => row.tasks.join(", "), cell: (row) => (row.flagged && !row.tasks.length ? "needs the scope test" : short(row.tasks.join(", "))) },
    ],
  });
}

// Rows of a test set are asked for only when someone says so, since each read counts.
async function rowsOf(shown, query) {
  const wanted = query.get("rows");
  if (!shown.readable || (shown.version.split === "test" && wanted === null)) return null;
  const offset = Number.parseInt(wanted ?? "0", 10) || 0;
  const { kind, id } = shown.version;
  const page = await source.get(["data", kind, id, "rows"], { offset: Math.max(0, offset), limit: PAGE });
  const go = (to, words) => el("a", { href: address(["data", kind, id], { rows: to }) }, words);
  const last = page.rows.length ? page.rows.at(-1).number + 1 : offset;
  return el(
    "div",
    {},
    table({ name: "rows", caption: `Rows ${offset + 1} to ${last} of ${page.total.toLocaleString("en-GB")}`, rows: page.rows, empty: "There are no rows here.", columns: columns(page.rows), sortable: false }),
    el("p", { class: "below" }, offset > 0 && go(Math.max(0, offset - PAGE), "Previous rows"), page.next !== null && go(page.next, "Next rows")),
  );
}

function columns(rows) {
  const own = [...new Set(rows.flatMap(({ row }) => Object.keys(row ?? {})))];
  const count = { key: "number", label: "Row", head: true, numeric: true, value: (row) => row.number + 1 };
  const value = (row, name) => (row.row === null ? row.text : row.row[name] === undefined ? null : text(row.row[name]));
  if (!own.length || own.length > MOST_COLUMNS) {
    const whole = (row) => row.text ?? JSON.stringify(row.row);
    return [count, { key: "row", label: "Content", value: whole, cell: (row) => short(whole(row)) }];
  }
  return [count, ...own.map((name, place) => ({ key: `column${place}`, label: name, value: (row) => value(row, name), cell: (row) => short(row.row === null && place ? null : value(row, name)) }))];
}

function sealed({ version: found, readable, reads }) {
  if (!readable) return el("p", { class: "empty" }, "This is a test set. Its rows need a key with the scope test.");
  const show = () => {
    if (!confirm(`This is a test set. Its rows were read ${plural(reads, "time")}; showing them counts as one more.`)) return;
    location.hash = address(["data", found.kind, found.id], { rows: 0 });
  };
  return el("p", {}, "This is a test set, and each read of its rows counts. ", el("button", { type: "button", onclick: show }, "Show rows"));
}

function split(value) {
  return value === "test" ? el("span", { class: "badge doubt" }, "test") : value;
}

function link(kind, id, words = id) {
  return el("a", { href: address(["data", kind, id]) }, words);
}

function short(value) {
  return typeof value === "string" && value.length > CUT ? `${value.slice(0, CUT)}…` : value;
}
