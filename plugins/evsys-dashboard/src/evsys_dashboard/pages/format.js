// Numbers, times and sums of money as people read them. Unknown values are a dash.

export const DASH = "–";

export function number(value, digits = 4) {
  if (value === null || value === undefined) return DASH;
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en-GB");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(digits - 2);
  return String(Number(value.toPrecision(digits)));
}

export function score(value) {
  return typeof value === "number" ? value.toFixed(3) : DASH;
}

export function signed(value) {
  return typeof value === "number" ? `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}` : DASH;
}

export function interval(low, high) {
  const known = typeof low === "number" || typeof high === "number";
  const end = (value, open) => (typeof value === "number" ? signed(value) : open);
  return known ? `${end(low, "−∞")} to ${end(high, "∞")}` : DASH;
}

export function money(value) {
  return typeof value === "number" ? `$${value < 10 ? value.toFixed(2) : Math.round(value).toLocaleString("en-GB")}` : DASH;
}

export function bytes(value) {
  if (typeof value !== "number") return DASH;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  for (; value >= 1000 && place < units.length - 1; place += 1) value /= 1000;
  return `${place ? value.toFixed(1) : value} ${units[place]}`;
}

export function duration(seconds) {
  if (typeof seconds !== "number") return DASH;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.round(hours / 24)} days`;
}

export function age(moment, now = Date.now()) {
  const then = Date.parse(moment ?? "");
  return Number.isNaN(then) ? DASH : `${duration(Math.max(0, (now - then) / 1000))} ago`;
}

export function time(moment) {
  const then = Date.parse(moment ?? "");
  return Number.isNaN(then) ? DASH : new Date(then).toISOString().replace("T", " ").slice(0, 19);
}

export function plural(count, noun) {
  return `${count.toLocaleString("en-GB")} ${noun}${count === 1 ? "" : "s"}`;
}

// Facts of an event or a log line, in one line.
export function brief(facts) {
  return Object.entries(facts ?? {}).map(([name, value]) => `${name} ${text(value)}`).join(", ").slice(0, 300);
}

export function text(value) {
  return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
}
