// Act on a running experiment. Every request is on record with its reason.

import { source } from "./api.js";
import { el, replace, section } from "./dom.js";

export function control(id, runs, redraw) {
  const arms = [...new Set(runs.map((run) => run.arm))];
  const arm = el("select", {}, el("option", { value: "" }, "all arms"), arms.map((name) => el("option", { value: name }, name)));
  const reason = el("input", { type: "text", maxlength: 500, placeholder: "kept on record" });
  const steps = el("input", { type: "number", min: 1, step: 1, placeholder: "100" });
  const answer = el("p", { role: "status" });

  async function ask(command, more = {}) {
    replace(answer, "Waiting for the step to end…");
    try {
      const said = await source.post(["experiments", id, "control"], { command, arm: arm.value || null, reason: reason.value, ...more });
      replace(answer, said.message ?? "Done.");
      redraw();
    } catch (error) {
      replace(answer, el("span", { class: "bad" }, error.message));
    }
  }

  const button = (text, command, more, danger) => el("button", { type: "button", class: danger ? "danger" : null, onclick: () => ask(command, more?.()) }, text);
  const stop = el("button", { type: "button", class: "danger", onclick: () => confirm("Stop it, and conclude from what there is?") && ask("stop") }, "Stop");
  return section(
    "Control",
    el(
      "div",
      { class: "control" },
      el("label", {}, "Arm", arm),
      el("label", {}, "Reason", reason),
      button("Pause", "pause"),
      button("Continue", "unpause"),
      stop,
      el("label", {}, "More steps", steps),
      button("Extend", "extend", () => ({ steps: Number(steps.value) })),
    ),
    answer,
  );
}
