// Keys, storage and the audit log; and signing in, which changes a key for a cookie.

import { source } from "./api.js";
import { definitions, el, note, replace, section } from "./dom.js";
import { bytes, number, time } from "./format.js";
import { table } from "./table.js";

export async function administration({ redraw }) {
  const found = await source.get(["/", "administration"]);
  return {
    title: "Administration",
    node: el(
      "article",
      {},
      el("h1", {}, "Administration"),
      definitions([["Database", found.database], ["Size", bytes(found.bytes)], ["Projects", (found.projects ?? []).join(", ")], ["Experiments", number(found.experiments)], ["Lines", number(found.lines)]]),
      found.keys && keys(found, redraw),
      found.audit && audit(found.audit),
      source.csrf && el("p", {}, el("button", { type: "button", onclick: () => source.post(["/", "session"], {}, "DELETE").then(redraw) }, "Sign out")),
    ),
  };
}

function keys({ keys: rows }, redraw) {
  const shown = el("p", { role: "status" });
  const create = async (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    try {
      const made = await source.post(["/", "keys"], { project: form.get("project"), scopes: form.getAll("scope"), note: form.get("note") });
      replace(shown, "The key, shown this once: ", el("code", {}, made.key));
    } catch (error) {
      replace(shown, el("span", { class: "bad" }, error.message));
    }
  };
  const revoke = (key) => confirm(`Revoke ${key.prefix}? Whoever uses it loses access at once.`) && source.post(["/", "keys", key.id], {}, "DELETE").then(redraw);
  const scope = (name) => el("label", { class: "inline" }, el("input", { type: "checkbox", name: "scope", value: name }), name);
  return section(
    "Keys",
    table({
      name: "keys",
      caption: "Keys, without their secrets",
      rows,
      empty: "There are no keys.",
      columns: [
        { key: "prefix", label: "Key", head: true, value: (row) => `${row.prefix}…` },
        { key: "project", label: "Project", value: (row) => row.project ?? "all" },
        { key: "scopes", label: "Scopes", value: (row) => (row.scopes ?? []).join(", ") },
        { key: "note", label: "Note", value: (row) => row.note },
        { key: "created", label: "Created", value: (row) => row.created, cell: (row) => time(row.created) },
        { key: "used", label: "Last used", value: (row) => row.used, cell: (row) => time(row.used) },
        { key: "revoke", label: "Revoke", value: (row) => row.revoked ?? "", cell: (row) => (row.revoked ? `revoked ${time(row.revoked)}` : el("button", { type: "button", class: "danger", onclick: () => revoke(row) }, "Revoke")) },
      ],
    }),
    el(
      "form",
      { class: "filters", onsubmit: create },
      el("label", {}, "Project", el("input", { name: "project", required: true })),
      el("fieldset", { class: "filters" }, el("legend", {}, "Scopes"), ["read", "write", "test", "admin"].map(scope)),
      el("label", {}, "Note", el("input", { name: "note" })),
      el("button", { type: "submit" }, "Create key"),
    ),
    shown,
  );
}

function audit(rows) {
  return section(
    "Audit log",
    table({
      name: "audit",
      caption: "Who did what, the newest first",
      rows,
      empty: "Nothing has happened yet.",
      columns: [
        { key: "at", label: "Time", value: (row) => row.at, cell: (row) => time(row.at) },
        { key: "key", label: "Key", value: (row) => row.key ?? "this machine" },
        { key: "action", label: "Action", value: (row) => row.action },
        { key: "subject", label: "Subject", value: (row) => row.subject },
      ],
    }),
  );
}

export function signIn(redraw) {
  const answer = el("p", { role: "alert" });
  const enter = async (event) => {
    event.preventDefault();
    try {
      await source.post(["/", "session"], { key: new FormData(event.currentTarget).get("key") });
      redraw();
    } catch (error) {
      replace(answer, el("span", { class: "bad" }, error.message));
    }
  };
  return el(
    "form",
    { class: "filters", onsubmit: enter },
    el("h1", {}, "Sign in"),
    note("A key is created with `evsys dashboard keys create`. The browser keeps a cookie, never the key."),
    el("label", {}, "Key", el("input", { type: "password", name: "key", required: true, autocomplete: "off" })),
    el("button", { type: "submit" }, "Sign in"),
    answer,
  );
}
