// Numbers and strangers' texts as people read them. The process sends seconds and unix seconds; what unit they are
// shown in is decided here, once.

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const LONGEST = 400;

// A text from elsewhere, made safe to look at: what would reorder or hide its neighbours is written out.
export function shown(value, longest = LONGEST) {
  if (value === null || value === undefined) return "";
  let text = typeof value === "string" ? value : JSON.stringify(value);
  if (text.length > longest) text = `${text.slice(0, longest)}…`;
  return text.replace(HIDDEN, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// Data as indented text; its own line breaks are escaped, so that the lines are those of the form.
export function pretty(value, longest = 8000) {
  return JSON.stringify(value, null, 2)
    .slice(0, longest)
    .split("\n")
    .map((line) => shown(line, longest))
    .join("\n");
}

export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

const THIN = "\u202f";

const FORMATS = [0, 1, 2].map(
  (places) => new Intl.NumberFormat("en", { minimumFractionDigits: places, maximumFractionDigits: places }),
);

function digits(value, places) {
  const text = FORMATS[places].format(value);
  return text.length > 3 ? text.replaceAll(",", THIN) : text;
}

export function count(value) {
  return isNumber(value) ? digits(value, 0) : "–";
}

export function rate(value) {
  if (!isNumber(value)) return "–";
  if (value === 0) return "0";
  return digits(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

export function bytes(value) {
  if (!isNumber(value)) return "–";
  const units = ["B", "KB", "MB", "GB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${digits(value, unit === 0 || value >= 100 ? 0 : 1)}${THIN}${units[unit]}`;
}

export function percent(value) {
  return isNumber(value) ? `${digits(value * 100, 1)}${THIN}%` : "–";
}

// How long something took: three digits that count, in the unit that fits.
export function lasted(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 0.001) return `${digits(value * 1e6, 0)}${THIN}µs`;
  if (size < 0.01) return `${digits(value * 1e3, 2)}${THIN}ms`;
  if (size < 0.1) return `${digits(value * 1e3, 1)}${THIN}ms`;
  if (size < 1) return `${digits(value * 1e3, 0)}${THIN}ms`;
  if (size < 10) return `${digits(value, 2)}${THIN}s`;
  if (size < 100) return `${digits(value, 1)}${THIN}s`;
  if (size < 7200) return `${digits(value / 60, 0)}${THIN}min`;
  if (size < 172800) return `${digits(value / 3600, 0)}${THIN}h`;
  return `${digits(value / 86400, 0)}${THIN}d`;
}

export function clock(unix, fine = false) {
  if (!isNumber(unix)) return "–";
  const at = new Date(unix * 1000);
  const two = (part) => String(part).padStart(2, "0");
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return fine ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text;
}

// A cell of a table, by the kind that its column says.
export function cell(value, kind) {
  if (value === null || value === undefined) return "–";
  if (kind === "count") return isNumber(value) ? count(value) : shown(value);
  if (kind === "seconds") return isNumber(value) ? lasted(value) : shown(value);
  if (kind === "unix") return isNumber(value) ? clock(value) : shown(value);
  if (kind === "bytes") return isNumber(value) ? bytes(value) : shown(value);
  if (kind === "rate") return isNumber(value) ? rate(value) : shown(value);
  if (kind === "percent") return isNumber(value) ? percent(value) : shown(value);
  if (kind === "flag") return value ? "yes" : "no";
  return shown(value);
}

export function isNumeric(kind) {
  return ["count", "seconds", "bytes", "rate", "percent"].includes(kind);
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
