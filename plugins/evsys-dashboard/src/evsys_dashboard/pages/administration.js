// Keys, storage and the audit log; and signing in, which changes a key for a cookie.

import { source } from "./api.js";
import { definitions, el, note, replace, section } from "./dom.js";
import { brief, time } from "./format.js";
import { table } from "./table.js";

export async function administration({ redraw }) {
  const me = await source.whoami();
  const admin = me.scopes.includes("admin");
  const [found, log] = await Promise.all([admin ? source.get(["/", "keys"]) : null, admin && me.project === null ? source.get(["/", "audit"], { limit: 200 }) : null]);
  return {
    title: "Administration",
    node: el(
      "article",
      {},
      el("h1", {}, "Administration"),
      definitions([["Key", `${me.key}…`], ["Scopes", me.scopes.join(", ")], ["Project", me.project ?? "all"]]),
      me.token && el("p", {}, el("button", { type: "button", onclick: () => source.post(["/", "session"], {}, "DELETE").then(redraw) }, "Sign out")),
      found && keys(found, redraw),
      log && audit(log.entries),
    ),
  };
}

function keys({ keys: rows }, redraw) {
  const shown = el("p", { role: "status" });
  const create = async (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    try {
      const made = await source.post(["/", "keys"], { project: form.get("project") || null, scopes: form.getAll("scope"), note: form.get("note") || null });
      replace(shown, "The key, shown this once: ", el("code", {}, made.text));
    } catch (error) {
      replace(shown, el("span", { class: "bad" }, error.message));
    }
  };
  const revoke = (key) => confirm(`Revoke ${key.prefix}? Whoever uses it loses access at once.`) && source.post(["/", "keys", key.prefix], {}, "DELETE").then(redraw);
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
        { key: "revoke", label: "Revoke", value: (row) => row.revoked ?? "", cell: (row) => (row.revoked ? `revoked ${time(row.revoked)}` : el("button", { type: "button", class: "danger", onclick: () => revoke(row) }, "Revoke")) },
      ],
    }),
    el(
      "form",
      { class: "filters", onsubmit: create },
      el("label", {}, "Project", el("input", { name: "project", placeholder: "all" })),
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
        { key: "project", label: "Project", value: (row) => row.project },
        { key: "address", label: "From", value: (row) => row.address },
        { key: "facts", label: "Facts", value: (row) => brief(row.facts) },
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
