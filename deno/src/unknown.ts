// What a newer release of kvmodels has stored in the catalogue, and this module does not know. Every item of a
// description is known, with its value, or the module writes nothing that depends on it.
import { isKnownType } from "./columns.ts";

// deno-lint-ignore no-explicit-any
type Raw = any;

const SECTIONS: ReadonlySet<string> = new Set(["format", "collections", "loading", "before"]);
const COLLECTION_SECTIONS: ReadonlySet<string> = new Set(
  "primary_key fields columns schema_version generations retired indexes upgraded oldest dropping".split(" "),
);
const STATES: ReadonlySet<unknown> = new Set(["disabled", "write_only", "pending", "readable", "dropping"]);
const EFFECTS: ReadonlySet<unknown> = new Set([undefined, "protect", "cascade", "set_null"]);
const NULLS: ReadonlySet<unknown> = new Set(["distinct", "skip", "equal"]);
const SUMMED: ReadonlySet<unknown> = new Set(["int", "number", "timedelta"]);
const LISTED: ReadonlySet<string> = new Set([
  "name",
  "generation",
  "state",
  "hash",
  "signature",
  "on_delete",
]);
const REQUIRED = ["columns", "unique", "nulls", "store"];

/** For each item of a signature that is known, whether its value is. */
const ITEMS: Readonly<Record<string, (value: Raw) => boolean>> = {
  columns: areColumns,
  unique: isBoolean,
  nulls: (value) => NULLS.has(value),
  store: (value) => value === null || value === "record",
  where: (value) => isList(value) && value.every((tests) => isList(tests) && tests.every(isTest)),
  include: (value) => isList(value) && value.every(isText),
  sums: (value) => areColumns(value) && value.every(([, type]: Raw[]) => SUMMED.has(type)),
  reference: isText,
};

/** The sections of the header that are not known. */
export function unknownSections(header: Raw): string[] {
  return Object.keys(header).filter((name) => !SECTIONS.has(name));
}

/** The sections of a collection that are not known, and the fields whose column has an unknown type. */
export function unknownParts(collection: Raw): string[] {
  const columns = Object.entries(collection.columns).filter(([, type]) => !isKnownType(type as string));
  return [
    ...Object.keys(collection).filter((name) => !COLLECTION_SECTIONS.has(name)),
    ...columns.map(([name]) => `columns.${name}`),
  ];
}

/** The items of the description of an index that are not known, or whose value is not. */
export function unknownItems(index: Raw): string[] {
  const { signature } = index;
  const unknown = Object.keys(index).filter((name) => !LISTED.has(name));
  if (!STATES.has(index.state)) unknown.push("state");
  if (!EFFECTS.has(index.on_delete)) unknown.push("on_delete");
  unknown.push(...REQUIRED.filter((name) => !Object.hasOwn(signature, name)));
  for (const [name, value] of Object.entries(signature)) {
    if (!Object.hasOwn(ITEMS, name) || !ITEMS[name]!(value)) unknown.push(name);
  }
  const plain = isList(signature.columns) && signature.columns.length === 1 &&
    signature.columns[0].length === 4;
  if (isText(signature.reference) && !plain) unknown.push("reference");
  return unknown;
}

/** Whether a stored reference names a collection, in a form that may be that of a newer release. */
export function namesCollection(reference: Raw, name: string): boolean {
  if (reference === null || typeof reference !== "object") return reference === name;
  return Object.values(reference).some((part) => namesCollection(part, name));
}

function areColumns(value: Raw): boolean {
  return isList(value) && value.every(isColumn);
}

function isColumn(value: Raw): boolean {
  if (!isList(value) || value.length < 4 || value.length > 5) return false;
  const [name, type, direction, nullable, place] = value;
  const known = isText(name) && isText(type) && isKnownType(type) && isBoolean(nullable);
  return known && (direction === "asc" || direction === "desc") && (value.length === 4 || isPlace(place));
}

function isPlace(value: Raw): boolean {
  if (value === null || typeof value !== "object" || Object.keys(value).sort().join() !== "many,path") {
    return false;
  }
  const { path, many } = value;
  if (!isBoolean(many) || !isList(path) || !path.length || !path.every(isText)) return false;
  return path[0] !== "$kv" || (path.length === 3 && path[1] === "c");
}

function isTest(value: Raw): boolean {
  return isList(value) && value.length === 2 && isColumn(value[0]) && isList(value[1]) &&
    value[1].every(isSpan);
}

function isSpan(value: Raw): boolean {
  return isList(value) && value.length === 2 &&
    value.every((end) => isText(end) && /^([0-9a-f]{2})*$/.test(end));
}

function isList(value: Raw): value is Raw[] {
  return Array.isArray(value);
}

function isText(value: Raw): value is string {
  return typeof value === "string";
}

function isBoolean(value: Raw): value is boolean {
  return typeof value === "boolean";
}
