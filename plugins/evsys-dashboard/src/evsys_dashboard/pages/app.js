// The frame around every page: navigation, the page that belongs to the address, and live updates.

import { Failure, source } from "./api.js";
import { dark } from "./charts.js";
import { el, replace } from "./dom.js";
import { address, current } from "./route.js";
import { experiments } from "./experiments.js";
import { experiment } from "./experiment.js";
import { run } from "./run.js";
import { rollout } from "./rollout.js";
import { compare } from "./compare.js";
import { memory } from "./memory.js";
import { data } from "./data.js";
import { administration, signIn } from "./administration.js";

const PAGES = { experiments, experiment, run, rollout, compare, memory, data, administration };
const NAVIGATION = ["experiments", "compare", "memory", "data", "administration"];
const main = document.getElementById("main");
const top = document.querySelector("header.top");
let drawn = { stop() {} };

// experiments, experiments/ID, experiments/ID/runs/RUN, experiments/ID/runs/RUN/rollouts/...
function pageOf([name = "experiments", ...rest]) {
  if (name !== "experiments") return name;
  return rest.length > 3 ? "rollout" : ["experiments", "experiment", "experiment", "run"][rest.length];
}

function header(page, projects, project) {
  const go = (event) => {
    location.hash = address(["experiments"], {}, event.target.value);
  };
  const link = (name) =>
    el("a", { href: address([name]), "aria-current": name === page ? "page" : null }, name[0].toUpperCase() + name.slice(1));
  const shown = NAVIGATION.filter((name) => source.has(name));
  replace(
    top,
    el("a", { class: "brand", href: address(["experiments"]) }, "evsys"),
    el("nav", { "aria-label": "Pages" }, project !== null && shown.map(link)),
    projects.length > 1 && el("select", { "aria-label": "Project", onchange: go }, projects.map(({ name }) => el("option", { value: name, selected: name === project }, name))),
    el("button", { type: "button", class: "quiet", onclick: turnTheme }, "Light or dark"),
    el("span", { class: "live", role: "status", id: "live" }),
  );
}

function turnTheme() {
  const root = document.documentElement;
  root.dataset.theme = dark() ? "light" : "dark";
  remembered((storage) => storage.setItem("evsys-theme", root.dataset.theme));
  draw();
}

function live(text, on = false) {
  const place = document.getElementById("live");
  replace(place, text);
  place.classList.toggle("on", on);
}

// A page is a function of the address that gives {title, node, follow}; `follow` is the experiment after whose changes it is drawn again, true for any.
async function draw() {
  drawn.stop();
  const { project, path, query } = current();
  const name = pageOf(path);
  const mine = { stop() {} };
  drawn = mine;
  try {
    const projects = await source.projects();
    if (drawn !== mine) return;
    if (project === null && projects.length) return location.replace(address(["experiments"], {}, projects[0].name));
    header(name in PAGES ? name : "experiments", projects, project);
    if (project === null) return replace(main, empty());
    const page = PAGES[name];
    if (!page) throw new Failure(404, "There is no such page.", "Choose one from the navigation above.");
    const made = await page({ path, query, redraw: draw });
    if (drawn !== mine) return;
    document.title = `${made.title} · evsys`;
    replace(main, made.node);
    // The version is older than the page, so that a change made while the page was drawn isn't missed.
    const { version } = projects.find(({ name }) => name === project) ?? {};
    if (made.follow) mine.stop = source.follow(made.follow === true ? null : made.follow, version, draw, live);
  } catch (error) {
    if (drawn !== mine) return;
    if (!(error instanceof Failure)) console.error(error);
    document.title = "evsys";
    replace(main, error.status === 401 ? signIn(draw) : problem(error));
  }
}

function empty() {
  return el("p", { class: "empty" }, "There is no project here yet. Send one with `evsys sync`, with a key in EVSYS_API_KEY.");
}

function problem(error) {
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("h1", {}, error.status === 404 ? "Not found" : "This page can't be shown"),
    el("p", {}, error.message),
    error.hint && el("p", { class: "soft" }, error.hint),
    el("p", {}, el("button", { type: "button", onclick: draw }, "Try again")),
  );
}

// A page that was opened from a file may have no storage.
function remembered(use) {
  try {
    return use(localStorage);
  } catch {
    return null;
  }
}

const theme = remembered((storage) => storage.getItem("evsys-theme"));
if (theme) document.documentElement.dataset.theme = theme;
addEventListener("hashchange", () => {
  draw().then(() => main.focus({ preventScroll: true }));
  scrollTo(0, 0);
});
draw();
