// Texts that stand for values of other types. Each function returns what a key holds, or undefined for a value
// that is not of the type.

/** A text that has no lone surrogates, which two different texts would share in a key. */
export function wellFormed(value: unknown): string | undefined {
  return typeof value === "string" && value.isWellFormed() ? value : undefined;
}

/** The canonical text of a UUID. */
export function uuid(value: unknown): string | undefined {
  return matched(value, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
}

/** The canonical text of a ULID. */
export function ulid(value: unknown): string | undefined {
  return matched(value, /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
}

/** A date of the calendar as YYYY-MM-DD. */
export function date(value: unknown): string | undefined {
  const text = matched(value, /^\d{4}-\d\d-\d\d$/);
  if (text === undefined || text < "0001-01-01") return undefined;
  const time = Date.parse(`${text}T00:00:00Z`);
  return !Number.isNaN(time) && new Date(time).toISOString().startsWith(text) ? text : undefined;
}

const TIME = /^(\d\d):(\d\d):(\d\d)(?:\.(\d{6}))?$/;

/** A time of the day with microseconds. */
export function time(value: unknown): string | undefined {
  const found = typeof value === "string" ? TIME.exec(value) : null;
  if (found === null) return undefined;
  const [, hour, minute, second, fraction] = found;
  if (hour! > "23" || minute! > "59" || second! > "59") return undefined;
  return `${hour}:${minute}:${second}.${fraction ?? "000000"}`;
}

const DATETIME = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d(?:\.\d{6})?)([+-])(\d\d):(\d\d)(?::(\d\d))?$/;

/** The text that kvmodels stores for a time with its offset, of a Date or of a text that ends with `Z`. */
export function storedDatetime(value: unknown): unknown {
  if (value instanceof Date && !Number.isNaN(value.getTime())) return storedDatetime(value.toISOString());
  const found = typeof value === "string" ? /^(.{19})(?:\.(\d{1,6}))?Z$/.exec(value) : null;
  if (found === null) return value;
  const fraction = (found[2] ?? "").padEnd(6, "0");
  return `${found[1]}${fraction === "000000" ? "" : `.${fraction}`}+00:00`;
}

/** The text of a time with an offset in UTC, with microseconds. */
export function utc(value: unknown): string | undefined {
  const text = storedDatetime(value);
  const found = typeof text === "string" ? DATETIME.exec(text) : null;
  if (found === null) return undefined;
  const [, day, clock, sign, hours, minutes, seconds] = found;
  const whole = time(clock);
  if (
    date(day) === undefined || whole === undefined || hours! > "23" || minutes! > "59" ||
    (seconds ?? "") > "59"
  ) {
    return undefined;
  }
  const offset = (Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds ?? 0)) *
    (sign === "-" ? -1 : 1);
  const instant = new Date(Date.parse(`${day}T${whole.slice(0, 8)}Z`) - offset * 1000);
  const shown = instant.toISOString();
  if (!/^\d{4}-/.test(shown) || shown < "0001") return undefined; // not in the years 1 to 9999
  return `${shown.slice(0, 19)}${whole.slice(8)}+00:00`;
}

const DECIMAL = /^([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d{1,6}))?$/;

/** The bytes of a decimal number, which sort like the numbers. */
export function decimal(value: unknown): Uint8Array | undefined {
  const found = typeof value === "string" ? DECIMAL.exec(value) : null;
  if (found === null || `${found[2]}${found[3] ?? ""}` === "") return undefined;
  const fraction = found[3] ?? "";
  const leading = `${found[2]}${fraction}`.replace(/^0+/, "");
  const exponent = leading.length - 1 + Number(found[4] ?? 0) - fraction.length;
  let digits = leading.replace(/0+$/, "");
  if (digits === "") return Uint8Array.of(2);
  if (digits.length > 100 || Math.abs(exponent) > 6144) return undefined;
  if (digits.length % 2) digits += "0";
  const body = [(exponent + 8192) >> 8, (exponent + 8192) & 255];
  for (let at = 0; at < digits.length; at += 2) body.push(Number(digits.slice(at, at + 2)) + 1);
  return found[1] === "-"
    ? Uint8Array.of(1, ...body.map((byte) => 255 - byte), 255)
    : Uint8Array.of(3, ...body);
}

/** The version and the bytes of an IPv4 address. */
export function ip4(value: unknown): Uint8Array | undefined {
  const text = matched(value, /^(?:0|[1-9]\d{0,2})(?:\.(?:0|[1-9]\d{0,2})){3}$/);
  const bytes = text?.split(".").map(Number);
  return bytes?.every((byte) => byte < 256) ? Uint8Array.of(4, ...bytes) : undefined;
}

/** The version and the bytes of an IPv6 address without a scope. */
export function ip6(value: unknown): Uint8Array | undefined {
  const text = matched(value, /^[0-9a-fA-F:.]+$/);
  const url = text === undefined ? null : URL.parse(`http://[${text}]/`);
  if (url === null) return undefined;
  const [head, tail] = url.hostname.slice(1, -1).split("::").map((half) => half.split(":").filter(Boolean));
  const zeros = tail === undefined ? 0 : 8 - head!.length - tail.length;
  const groups = [...head!, ...Array<string>(zeros).fill("0"), ...(tail ?? [])].map((group) =>
    parseInt(group, 16)
  );
  return Uint8Array.of(6, ...groups.flatMap((group) => [group >> 8, group & 255]));
}

function matched(value: unknown, pattern: RegExp): string | undefined {
  return typeof value === "string" && pattern.test(value) ? value : undefined;
}

/** Letters whose folded form is not their lower case; of these, Python folds each as here. */
const FOLDED: Readonly<Record<string, string>> = {
  "\u00b5": "\u03bc",
  "\u00df": "ss",
  "\u0130": "i\u0307",
  "\u0149": "\u02bcn",
  "\u017f": "s",
};

/**
 * What `str.casefold` of Python returns for a text of Latin letters up to U+017F and Cyrillic ones; undefined for
 * any other text, because JavaScript has no such function.
 */
export function casefold(text: string): string | undefined {
  if (!/^[\0-\u017f\u0400-\u052f]*$/.test(text)) return undefined;
  let folded = "";
  for (const letter of text) folded += FOLDED[letter] ?? letter.toLowerCase();
  return folded;
}
