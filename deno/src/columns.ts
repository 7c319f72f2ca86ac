// Values of fields as key parts: one part for each value, in the order of the values. The table is on the page
// "Stored layout" of the documentation of kvmodels.
import { ModelsError } from "./errors.ts";
import { complement, packPart, unpackBytes } from "./keys.ts";
import type { KeyPart } from "./store.ts";
import * as texts from "./texts.ts";

/** A column of a primary key or of an index, as the catalogue describes it. */
export interface Column {
  /** A field, a path with dots, or a computed column. */
  readonly name: string;
  /** The name of its type in the catalogue. */
  readonly type: string;
  readonly descending: boolean;
  readonly nullable: boolean;
  /** Whether it has a value for each element of a list or set. */
  readonly many: boolean;
  /** Where its value is in a stored document. */
  readonly path: readonly string[];
}

/** Types whose key part is their text, so that texts can be found by their beginning. */
export const TEXT_TYPES: ReadonlySet<string> = new Set(["str", "uuid", "ulid", "date", "datetime", "time"]);

const MAX_BIGINT = 1n << 2040n;

/** The conversion of a stored value to a key part, by the name of the type. */
const PARTS: Readonly<Record<string, (value: unknown) => KeyPart>> = {
  bool: (value) => typeof value === "boolean" ? value : wrong(value, "a boolean"),
  int: bigintOf,
  timedelta: bigintOf,
  number: (value) => {
    const number = typeof value === "bigint" ? Number(value) : value;
    return Number.isSafeInteger(number) ? (number as number) + 0 : wrong(value, "an integer within 2 ** 53");
  },
  float: (value) => {
    if (typeof value !== "number" || Number.isNaN(value)) wrong(value, "a number, and not NaN");
    return (value as number) + 0; // -0 + 0 is 0
  },
  str: (value) => texts.wellFormed(value) ?? wrong(value, "a string without lone surrogates"),
  bytes: (value) =>
    value instanceof Uint8Array ? Uint8Array.from([1, ...value]) : wrong(value, "a Uint8Array"),
  uuid: (value) => texts.uuid(value) ?? wrong(value, "the text of a UUID, in lower case"),
  ulid: (value) => texts.ulid(value) ?? wrong(value, "the text of a ULID, in upper case"),
  date: (value) => texts.date(value) ?? wrong(value, "a date such as 2026-01-31"),
  datetime: (value) =>
    texts.utc(value) ?? wrong(value, "a Date, or a text such as 2026-01-31T12:00:00+00:00"),
  time: (value) => texts.time(value) ?? wrong(value, "a time such as 12:00:00"),
  decimal: (value) => texts.decimal(value) ?? wrong(value, "the text of a finite decimal number"),
  ip4: (value) => texts.ip4(value) ?? wrong(value, "an IPv4 address"),
  ip6: (value) => texts.ip6(value) ?? wrong(value, "an IPv6 address"),
  ip: (value) => texts.ip4(value) ?? texts.ip6(value) ?? wrong(value, "an IP address"),
};

/** Whether this release knows a type of columns. */
export function isKnownType(type: string): boolean {
  return Object.hasOwn(PARTS, type);
}

/** The key part of one value of a column, which is null or of the type of the column. */
export function columnPart(column: Column, value: unknown): KeyPart {
  const part = ascendingPart(column, value);
  return column.descending ? unpackBytes(complement(packPart(part)) + "\xff") : part;
}

/** The key part that the same column would have if it were ascending. */
export function ascendingPart(column: Column, value: unknown): KeyPart {
  if (value === null) {
    return column.nullable ? new Uint8Array(0) : wrong(value, "a value: null is not allowed here");
  }
  const part = PARTS[column.type];
  if (part === undefined) throw unknownType(column.type);
  return part(value);
}

/** The value that a key part stands for; of a Decimal or an IP address the part itself. */
export function valueOf(column: Column, part: KeyPart): unknown {
  if (typeof part === "bigint") {
    const number = Number(part);
    return Number.isSafeInteger(number) ? number : part;
  }
  return column.type === "bytes" ? (part as Uint8Array).slice(1) : part;
}

/** The error for a type of columns of a newer release. */
export function unknownType(type: string): ModelsError {
  return new ModelsError(
    "unsupported_index",
    `the type ${JSON.stringify(type)} of a column is not known`,
    "Update this module.",
  );
}

/** The values of a column in a stored document; undefined if the document does not store them as the column expects. */
export function columnValues(column: Column, document: unknown): unknown[] | undefined {
  const found = walk(document, column.path);
  if (found === undefined || (found.several && !column.many)) return undefined;
  return found.several || !column.many || found.values[0] === null ? found.values : undefined;
}

interface Found {
  readonly values: unknown[];
  /** Whether a list or set was on the way. */
  readonly several: boolean;
}

function walk(value: unknown, path: readonly string[]): Found | undefined {
  if (value === null) return { values: [null], several: false };
  if (isSeveral(value)) {
    const inner = [...value].map((element) => walk(element, path));
    if (inner.includes(undefined)) return undefined;
    return { values: inner.flatMap((one) => one!.values).filter((one) => one !== null), several: true };
  }
  const [first, ...rest] = path;
  if (first === undefined) return { values: [value], several: false };
  if (typeof value !== "object" || !Object.hasOwn(value as object, first)) return undefined;
  return walk((value as Record<string, unknown>)[first], rest);
}

function isSeveral(value: unknown): value is Iterable<unknown> {
  return Array.isArray(value) || value instanceof Set;
}

function bigintOf(value: unknown): bigint {
  if (typeof value !== "bigint" && !Number.isSafeInteger(value)) {
    wrong(value, "an integer: a number within 2 ** 53, or a bigint");
  }
  const integer = BigInt(value as number | bigint);
  return -MAX_BIGINT < integer && integer < MAX_BIGINT
    ? integer
    : wrong(value, "an integer of at most 255 bytes");
}

function wrong(value: unknown, expected: string): never {
  throw new ModelsError(
    "invalid_value",
    `the value (${kindOf(value)}) is not ${expected}`,
    "Nothing was written.",
  );
}

/** A name for the type of a value in messages, which never show values. */
export function kindOf(value: unknown): string {
  if (value === null) return "null";
  return typeof value === "object" ? value.constructor?.name ?? "object" : typeof value;
}
