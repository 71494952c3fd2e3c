// The state of a page is its address: `#/PROJECT/experiments/ID?metric=loss`. A report in one file uses the same addresses.

export function current() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [project = null, ...rest] = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { project, path: rest, query: new URLSearchParams(query) };
}

// The address of a page of this project, or of another one.
export function address(path, query = {}, project = current().project) {
  return `#/${[project, ...path].map(encodeURIComponent).join("/")}${search(query)}`;
}

// A query as text: lists repeat their name, and unknown values are left out.
export function search(query) {
  const known = Object.entries(query).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  const text = new URLSearchParams(known.filter(([, value]) => value !== null && value !== undefined && value !== "")).toString();
  return text ? `?${text}` : "";
}

// Change the query of this page without a step in the history and without drawing it again.
export function keep(changes) {
  const { path, query } = current();
  history.replaceState(null, "", address(path, { ...all(query), ...changes }));
}

export function all(query) {
  return Object.fromEntries([...new Set(query.keys())].map((name) => [name, query.getAll(name)]));
}
