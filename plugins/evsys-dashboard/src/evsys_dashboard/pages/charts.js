// Charts: curves on a canvas, and intervals in SVG. Each is followed by a table of what it shows, so that nothing rests on sight alone.

import { el, svg } from "./dom.js";
import { interval, number, plural, signed } from "./format.js";
import { table } from "./table.js";

// Okabe and Ito's colours, which stay apart with every kind of colour blindness; dashes are the second cue.
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#b0528b", "#8a6d00", "#2e7fa8", "#444444"];
const DARK = ["#56b4e9", "#ff9350", "#2fc79a", "#e398c4", "#e8c93a", "#9ad1f0", "#cfcfcf"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const BANDS = 8; // beyond that many lines, bands hide each other

export function dark() {
  const forced = document.documentElement.dataset.theme;
  return forced ? forced === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function ink(place) {
  const colours = dark() ? DARK : LIGHT;
  return { colour: colours[place % colours.length], dash: DASHES[Math.floor(place / colours.length) % DASHES.length] };
}

export function legend(names) {
  const swatch = (place) => {
    const { colour, dash } = ink(place);
    return svg(
      "svg",
      { width: 28, height: 10, "aria-hidden": "true" },
      svg("line", { x1: 0, x2: 28, y1: 5, y2: 5, stroke: colour, "stroke-width": 2, "stroke-dasharray": dash.join(" ") || null }),
    );
  };
  return el("ul", { class: "legend" }, names.map((name, place) => el("li", {}, swatch(place), name)));
}

// A metric over steps, of the runs of each arm. curves: as the API gives them; arms: all that are drawn on the page, which decides their colours.
// A line is the mean of an arm's repeats and its band their 95 % interval, or the extremes of a thinned run; single runs appear while the
// pointer is over the chart.
export function curves({ title, curves: found, arms }) {
  const lines = arms.map((arm, place) => lineOf(arm, place, found.filter((curve) => (curve.arm ?? curve.run) === arm))).filter((line) => line.steps.length);
  if (!lines.length) return null;
  const holder = el("div", { class: "canvas", "aria-hidden": "true" });
  requestAnimationFrame(() => plot(holder, lines));
  return el(
    "figure",
    { class: "chart", role: "group", "aria-label": `${title} over steps` },
    el("h3", {}, title),
    holder,
    el("figcaption", { class: "note" }, captionOf(lines, found)),
    el("details", {}, el("summary", {}, "Numbers"), numbers(title, lines)),
  );
}

function lineOf(name, place, found) {
  const middle = (curve) => curve.low.map((low, index) => (low === null ? null : (low + curve.high[index]) / 2));
  if (found.length === 1) {
    const [curve] = found;
    const thinned = curve.total > curve.steps.length;
    return { name, place, steps: curve.steps, mean: middle(curve), low: thinned ? curve.low : null, high: curve.high, runs: [] };
  }
  const steps = [...new Set(found.flatMap((curve) => curve.steps))].sort((a, b) => a - b);
  const at = new Map(steps.map((step, index) => [step, index]));
  const runs = found.map((curve) => {
    const values = new Array(steps.length).fill(null);
    middle(curve).forEach((value, index) => (values[at.get(curve.steps[index])] = value));
    return { run: curve.run, values };
  });
  const summed = steps.map((_, index) => summary(runs.map((run) => run.values[index]).filter((value) => value !== null)));
  const column = (key) => summed.map((each) => each[key]);
  return { name, place, steps, mean: column("mean"), low: column("low"), high: column("high"), runs };
}

// Student's t at 97.5 % by degrees of freedom, from 1.
const T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086];

export function summary(values) {
  const n = values.length;
  if (!n) return { mean: null, low: null, high: null };
  const mean = values.reduce((sum, value) => sum + value, 0) / n;
  if (n === 1) return { mean, low: null, high: null };
  const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1));
  const half = ((T[n - 2] ?? 1.96) * deviation) / Math.sqrt(n);
  return { mean, low: mean - half, high: mean + half };
}

function captionOf(lines, found) {
  const repeats = Math.max(...lines.map((line) => line.runs.length));
  const points = found.reduce((sum, curve) => sum + curve.total, 0);
  const shown = found.reduce((sum, curve) => sum + curve.steps.length, 0);
  const parts = [];
  if (repeats > 1) parts.push(`line: mean of up to ${repeats} repeats; band: their 95 % interval`);
  if (points > shown) parts.push(`${plural(points, "point")}, of which each place shows the middle of the smallest and the largest`);
  return parts.join("; ");
}

function numbers(title, lines) {
  const rows = lines.flatMap((line) => {
    const last = line.mean.findLastIndex((value) => typeof value === "number");
    const known = line.mean.filter((value) => typeof value === "number");
    return last < 0 ? [] : [{ name: line.name, step: line.steps[last], last: line.mean[last], low: Math.min(...known), high: Math.max(...known) }];
  });
  const column = (name, label) => ({ key: name, label, numeric: true, value: (row) => row[name], cell: (row) => number(row[name]) });
  return table({
    name: `curve-${title}`,
    caption: title,
    rows,
    empty: "No numbers yet.",
    columns: [
      { key: "name", label: "Line", head: true, value: (row) => row.name },
      ...[["step", "Last step"], ["last", "Last value"], ["low", "Smallest"], ["high", "Largest"]].map(([name, label]) => column(name, label)),
    ],
  });
}

function plot(holder, lines) {
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, index) => [step, index]));
  const spread = (line, values) => {
    const all = new Array(steps.length).fill(undefined);
    line.steps.forEach((step, index) => {
      all[place.get(step)] = values[index] ?? null;
    });
    return all;
  };
  const data = [steps];
  const series = [{ label: "step" }];
  const bands = [];
  const singles = [];
  const add = (values, options) => series.push({ spanGaps: true, points: { show: values.filter((v) => typeof v === "number").length <= 30 }, ...options }) && data.push(values);
  lines.forEach((line) => {
    const { colour, dash } = ink(line.place);
    add(spread(line, line.mean), { label: line.name, stroke: colour, dash, width: 2 });
    if (lines.length <= BANDS && line.low) {
      const none = { width: 0, points: { show: false } };
      add(spread(line, line.high), { ...none, label: `${line.name} high` });
      add(spread(line, line.low), { ...none, label: `${line.name} low` });
      bands.push({ series: [data.length - 2, data.length - 1], fill: `${colour}2e` });
      for (const run of line.runs) {
        add(spread(line, run.values), { label: run.run, stroke: colour, width: 0.7, show: false, points: { show: false } });
        singles.push(data.length - 1);
      }
    }
  });
  const style = getComputedStyle(holder); // resolves a colour to that of the light or the dark page
  const axis = { stroke: style.color, grid: { stroke: style.borderTopColor, width: 0.5 } };
  const width = () => Math.max(240, holder.clientWidth);
  const chart = new uPlot( // eslint-disable-line no-undef
    {
      width: width(),
      height: 240,
      scales: { x: { time: false }, y: { range: rangeOf(lines) } },
      axes: [{ ...axis }, { ...axis, size: 60, values: (_, splits) => splits.map((value) => number(value, 3)) }],
      series,
      bands,
      cursor: { drag: { x: true, y: false } },
    },
    data,
    holder,
  );
  const show = (visible) => singles.forEach((index) => chart.setSeries(index, { show: visible }));
  if (singles.length) {
    holder.addEventListener("pointerenter", () => show(true));
    holder.addEventListener("pointerleave", () => show(false));
  }
  new ResizeObserver(() => holder.isConnected && chart.setSize({ width: width(), height: 240 })).observe(holder);
}

// What lines and single runs span: the interval of two repeats can be a hundred times wider, and is cut at the edge.
function rangeOf(lines) {
  const known = lines.flatMap((line) => [...line.mean, ...line.runs.flatMap((run) => run.values)]).filter((value) => typeof value === "number");
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return [low - room, high + room];
}

// Effects with their intervals. rows: [{name, effect, low, high, outcome}]; margin: what a claim is tested against.
export function forest({ title, rows, margin = 0 }) {
  const known = rows.filter((row) => typeof row.effect === "number");
  if (!known.length) return null;
  const ends = known.flatMap((row) => [row.low, row.high, row.effect]).filter((value) => typeof value === "number");
  const [low, high] = [Math.min(0, margin, ...ends), Math.max(0, margin, ...ends)];
  const room = (high - low || 1) * 0.04;
  const at = (value) => (100 * (Math.min(Math.max(value, low - room), high + room) - low + room)) / (high - low + 2 * room);
  const ticks = apart([0, margin, low, high], at);
  return el(
    "figure",
    { class: "chart forest", role: "group", "aria-label": title },
    known.map((row) => track(row, at, margin)),
    el("div", { class: "ticks", "aria-hidden": "true" }, ticks.map((value) => el("span", { style: { left: `${at(value)}%` } }, signed(value)))),
  );
}

// The ticks that have room for their numbers, in the order of their worth.
function apart(values, at) {
  return values.reduce((kept, value) => (kept.every((other) => Math.abs(at(other) - at(value)) > 14) ? [...kept, value] : kept), []);
}

function track(row, at, margin) {
  const [from, to] = [at(row.low ?? -Infinity), at(row.high ?? Infinity)];
  const sure = row.outcome !== "inconclusive" && row.outcome !== "undecided";
  const part = (name, style) => el("span", { class: name, style });
  return el(
    "div",
    { class: "row" },
    el("span", {}, `${row.name}: ${signed(row.effect)} (${interval(row.low, row.high)})${row.outcome ? `, ${row.outcome}` : ""}`),
    el(
      "div",
      { class: "track", "aria-hidden": "true" },
      part("zero", { left: `${at(0)}%` }),
      margin !== 0 && part("zero margin", { left: `${at(margin)}%` }),
      part("range", { left: `${from}%`, width: `${to - from}%` }),
      part(sure ? "dot" : "dot open", { left: `${at(row.effect)}%` }), // a filled mark is decided, an open one isn't
    ),
  );
}
