// How verdicts, statuses and marks look wherever they stand: always a word, never a colour alone.

import { el } from "./dom.js";

const TONE = { SUPPORTED: "good", REFUTED: "bad", INVALID: "bad", INCONCLUSIVE: "doubt", CANDIDATE: "doubt" };
const STATUS = { completed: "good", failed: "bad", crashed: "bad", partial: "doubt", interrupted: "doubt", stopped: "doubt" };
const OUTCOME = { win: "good", supported: "good", loss: "bad", refuted: "bad" };
const SIGN = { good: "✓", bad: "✗", doubt: "?" };

export function tone(verdict) {
  return TONE[verdict] ?? "";
}

export function verdictBadge(verdict) {
  return verdict ? badge(verdict, TONE[verdict]) : el("span", { class: "soft" }, "no verdict");
}

export function statusBadge(status) {
  return badge(status ?? "unknown", STATUS[status]);
}

export function outcomeBadge(outcome) {
  return outcome ? badge(outcome, OUTCOME[outcome] ?? "doubt") : null;
}

export function marks(names) {
  return (names ?? []).map((name) => [" ", badge(name, "doubt")]);
}

function badge(text, kind = "soft") {
  return el("span", { class: `badge ${kind}` }, SIGN[kind] ? el("span", { "aria-hidden": "true" }, `${SIGN[kind]} `) : null, text);
}
