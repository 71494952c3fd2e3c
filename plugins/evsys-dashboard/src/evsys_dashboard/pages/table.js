// Tables that sort by their header buttons, show long lists in parts, and download as CSV.

import { append, el, readable, replace } from "./dom.js";
import { current, keep } from "./route.js";
import { DASH, plural } from "./format.js";

const PART = 200;

// columns: {key, label, cell(row) -> node or text, value(row) -> text or number for sorting and CSV, numeric}
export function table({ name, caption, columns, rows, empty, sortable = true }) {
  if (!rows.length) return el("p", { class: "empty" }, empty);
  const body = el("tbody");
  const more = el("p", { class: "more" });
  const heads = columns.map((column) => head(column));
  const state = { key: null, down: false, shown: PART, ...stored() };

  function stored() {
    const text = current().query.get(`${name}.sort`);
    return text ? { key: text.replace(/^-/, ""), down: text.startsWith("-") } : {};
  }

  function head(column) {
    const cell = el("th", { scope: "col", class: column.numeric ? "number" : null });
    if (!sortable) return append(cell, [column.label]);
    const sort = () => {
      state.down = state.key === column.key ? !state.down : Boolean(column.numeric);
      state.key = column.key;
      keep({ [`${name}.sort`]: (state.down ? "-" : "") + state.key });
      draw();
    };
    return append(cell, [el("button", { type: "button", class: "sort", onclick: sort }, column.label)]);
  }

  function sorted() {
    const column = columns.find((each) => each.key === state.key);
    if (!column) return rows;
    const order = [...rows].sort((a, b) => compare(column.value(a), column.value(b), state.down));
    return order;
  }

  function draw() {
    columns.forEach((column, place) => {
      const own = column.key === state.key;
      heads[place].setAttribute("aria-sort", own ? (state.down ? "descending" : "ascending") : "none");
    });
    const order = sorted();
    replace(body, order.slice(0, state.shown).map((row) => el("tr", {}, columns.map((column) => cellOf(column, row)))));
    const left = order.length - state.shown;
    const show = () => {
      state.shown += PART;
      draw();
    };
    replace(more, left > 0 && el("button", { type: "button", onclick: show }, `Show ${plural(Math.min(left, PART), "more row")} of ${left}`));
  }

  draw();
  const download = () => save(`${name}.csv`, csv(columns, sorted()));
  return el(
    "div",
    { class: "table" },
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), body),
    ),
    el("div", { class: "below" }, more, el("button", { type: "button", class: "quiet", onclick: download }, "Download CSV")),
  );
}

function cellOf(column, row) {
  const content = column.cell ? column.cell(row) : column.value(row);
  return el(column.head ? "th" : "td", { class: column.numeric ? "number" : null, scope: column.head ? "row" : null }, content ?? DASH);
}

function compare(a, b, down) {
  const missing = (value) => value === null || value === undefined || value === "";
  if (missing(a) || missing(b)) return missing(a) - missing(b); // unknown values come last in both orders
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return down ? -order : order;
}

// A cell that begins like a formula gets an apostrophe, so that no spreadsheet runs it.
export function csv(columns, rows) {
  const quoted = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const text = readable(String(value)).replace(/^(?=[=+\-@\t\r])/, "'");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [columns.map((column) => quoted(column.label)), ...rows.map((row) => columns.map((column) => quoted(column.value(row))))];
  return lines.map((cells) => `${cells.join(",")}\r\n`).join("");
}

export function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url));
}
