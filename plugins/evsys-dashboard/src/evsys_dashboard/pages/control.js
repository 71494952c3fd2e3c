// Act on a running experiment. Every request is on record with its reason.

import { source } from "./api.js";
import { el, replace, section } from "./dom.js";
import { duration, number } from "./format.js";
import { table } from "./table.js";

export async function control(id, runs, redraw) {
  const { status } = await source.get(["experiments", id, "status"]);
  if (status === null) return null;
  const arms = [...new Set(runs.map((run) => run.arm))];
  const arm = el("select", {}, el("option", { value: "" }, "all arms"), arms.map((name) => el("option", { value: name }, name)));
  const reason = el("input", { type: "text", maxlength: 500, placeholder: "kept on record" });
  const steps = el("input", { type: "number", min: 1, step: 1, placeholder: "100" });
  const answer = el("p", { role: "status" });

  async function ask(request, more = {}) {
    replace(answer, "Asked; it takes effect at the end of the step.");
    try {
      await source.post(["experiments", id, "control"], { request, arm: arm.value || null, reason: reason.value || null, ...more });
      redraw();
    } catch (error) {
      replace(answer, el("span", { class: "bad" }, error.message, error.hint && ` (${error.hint})`));
    }
  }

  const button = (text, onclick, danger) => el("button", { type: "button", class: danger ? "danger" : null, onclick }, text);
  return section(
    "Progress and control",
    progress(status),
    el(
      "div",
      { class: "control" },
      el("label", {}, "Arm", arm),
      el("label", {}, "Reason", reason),
      button("Pause", () => ask("pause")),
      button("Continue", () => ask("unpause")),
      button("Stop", () => confirm("Stop it, and conclude from the steps made so far?") && ask("stop"), true),
      el("label", {}, "More steps", steps),
      button("Extend", () => ask("extend", { arm: null, steps: Number(steps.value) })),
    ),
    answer,
  );
}

function progress({ runs }) {
  return table({
    name: "progress",
    caption: "Runs, as they are now",
    sortable: false,
    rows: runs,
    empty: "No run has started yet.",
    columns: [
      { key: "run", label: "Run", head: true, value: (row) => row.run },
      { key: "status", label: "Status", value: (row) => row.status },
      { key: "phase", label: "Phase", value: (row) => row.phase },
      { key: "step", label: "Step", numeric: true, value: (row) => row.step, cell: (row) => `${number(row.step)} of ${number(row.total_steps)}` },
      { key: "loss", label: "Loss", numeric: true, value: (row) => row.loss, cell: (row) => number(row.loss) },
      { key: "left", label: "Time left", numeric: true, value: (row) => row.seconds_left, cell: (row) => duration(row.seconds_left) },
    ],
  });
}
