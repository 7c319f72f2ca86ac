// Documents: the stored form of records, one property for each field, and "$kv" for the data of the library.
import { type CollectionCatalogue, foldedField, isMaintained, neededColumns } from "./catalogue.ts";
import { type Column, columnPart, columnValues, kindOf, valueOf } from "./columns.ts";
import { ModelsError } from "./errors.ts";
import { packKey, packPart } from "./keys.ts";
import type { Key } from "./store.ts";
import { casefold, storedDatetime } from "./texts.ts";

/** A record: the value of each field by its name. */
export type Document = Record<string, unknown>;

const OWN = "$kv";

/** A stored document without the data of the library. */
export function withoutOwn(document: Document): Document {
  const { [OWN]: _, ...fields } = document;
  return fields;
}

/** The schema version of a stored document. */
export function versionOf(document: Document): number {
  const own = document[OWN] as { v?: number | bigint } | undefined;
  return Number(own?.v ?? 1);
}

/** The primary key of a document, as key parts. Throws `missing_field` or `invalid_value`. */
export function primaryKeyOf(collection: CollectionCatalogue, document: Document): Key {
  return collection.primaryKey.map((column) => {
    if (document[column.name] === undefined) throw missing(column.name);
    return named(column.name, () => columnPart(column, document[column.name]));
  });
}

/** The values of a primary key, for errors. */
export function shownKey(collection: CollectionCatalogue, pk: Key): unknown[] {
  return pk.map((part, at) => valueOf(collection.primaryKey[at]!, part));
}

/** Whether a document has the primary key of the record key that it was found under. */
export function isNamed(collection: CollectionCatalogue, document: Document, pk: Key): boolean {
  try {
    return packKey(primaryKeyOf(collection, document)) === packKey(pk);
  } catch (error) {
    if (error instanceof ModelsError) return false;
    throw error;
  }
}

/**
 * The document to store for a record, with the computed values of case-folded fields.
 *
 * `known` holds the fields that the record has already, which may be undeclared; `optional` those that may be
 * absent. Throws `unknown_field`, `missing_field` or `invalid_value`.
 */
export function storedDocument(
  collection: CollectionCatalogue,
  record: Document,
  known: Document,
  optional: ReadonlySet<string>,
): Document {
  const document: Document = {};
  for (const [name, value] of Object.entries(record)) {
    if (name === OWN || (!collection.fields.has(name) && !Object.hasOwn(known, name))) {
      const names = [...collection.fields.keys()].join(", ");
      throw new ModelsError("unknown_field", "the model has no such field", `It has: ${names}.`, {
        field: name,
      });
    }
    document[name] = named(name, () => storedValue(collection, name, value));
  }
  for (const name of collection.fields.keys()) {
    if (!Object.hasOwn(document, name) && !optional.has(name)) throw missing(name);
  }
  const own: Document = {};
  if (collection.schemaVersion > 1) own.v = collection.schemaVersion;
  const folded = foldedValues(collection, document);
  if (Object.keys(folded).length) own.c = folded;
  return Object.keys(own).length ? { [OWN]: own, ...document } : document;
}

function missing(name: string): ModelsError {
  const hint =
    "Give it a value (null stands for None), or list it under `optional` if the model has a default for it.";
  return new ModelsError("missing_field", "the field is absent", hint, { field: name });
}

function named<T>(field: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw error instanceof ModelsError ? error.about({ field }) : error;
  }
}

function storedValue(collection: CollectionCatalogue, name: string, value: unknown): unknown {
  const type = collection.types.get(name);
  if (type === undefined) {
    requireStorable(value, new Set());
    return value;
  }
  if (value === null) {
    // A type that may be None says so in its name; an Optional Enum has the name of its values.
    if (collection.fields.get(name) !== type) return null;
    throw new ModelsError(
      "invalid_value",
      `the value is null, and the type of the field is ${type}`,
      NOTHING,
    );
  }
  const stored = type === "datetime" ? storedDatetime(value) : value;
  const expected = KINDS[type];
  if (expected !== undefined && !expected.test(stored)) {
    throw new ModelsError("invalid_value", `the value (${kindOf(value)}) is not ${expected.name}`, NOTHING);
  }
  if (typeof stored === "bigint" && isSafe(stored)) return Number(stored);
  requireStorable(stored, new Set());
  return stored;
}

const NOTHING = "Nothing was written.";

function isSafe(value: bigint): boolean {
  return BigInt(-Number.MAX_SAFE_INTEGER) <= value && value <= BigInt(Number.MAX_SAFE_INTEGER);
}

interface Kind {
  readonly name: string;
  test(value: unknown): boolean;
}

const INTEGER: Kind = {
  name: "an integer: a number within 2 ** 53, or a bigint",
  test: (value) => typeof value === "bigint" || Number.isSafeInteger(value),
};
const TEXT: Kind = { name: "a string", test: (value) => typeof value === "string" };

/** What every value of a type is, whether it is indexed or not; an index is stricter. */
const KINDS: Readonly<Record<string, Kind>> = {
  bool: { name: "a boolean", test: (value) => typeof value === "boolean" },
  int: INTEGER,
  number: INTEGER,
  timedelta: INTEGER,
  float: { name: "a number", test: (value) => typeof value === "number" },
  str: TEXT,
  bytes: { name: "a Uint8Array", test: (value) => value instanceof Uint8Array },
  uuid: TEXT,
  ulid: TEXT,
  date: TEXT,
  datetime: TEXT,
  time: TEXT,
  decimal: TEXT,
  ip: TEXT,
  ip4: TEXT,
  ip6: TEXT,
};

/** Refuse what Python could not read back; `open` holds the containers around the value. */
function requireStorable(value: unknown, open: Set<unknown>): void {
  const isText = typeof value === "string";
  if (
    value === undefined || typeof value === "function" || typeof value === "symbol" ||
    (isText && !value.isWellFormed())
  ) {
    const what = isText ? "a string with a lone surrogate" : kindOf(value);
    throw new ModelsError("invalid_value", `it holds ${what}, which Python cannot read`, NOTHING);
  }
  if (typeof value !== "object" || value === null || open.has(value) || ArrayBuffer.isView(value)) return;
  open.add(value);
  const inner = value instanceof Map
    ? [...value].flat()
    : value instanceof Set
    ? [...value]
    : Object.values(value);
  for (const one of inner) requireStorable(one, open);
  open.delete(value);
}

function foldedValues(collection: CollectionCatalogue, document: Document): Document {
  const values: Document = {};
  for (const column of collection.indexes.filter(isMaintained).flatMap(neededColumns)) {
    const field = foldedField(column);
    if (field !== undefined) {
      values[column.path[2]!] = named(field, () => foldedValue(column, field, document));
    }
  }
  return values;
}

function foldedValue(column: Column, field: string, document: Document): unknown {
  const plain: Column = { ...column, path: [field], descending: false };
  const found = columnValues(plain, document) ?? [];
  if (!column.many) return fold(found[0]);
  if (document[field] === null) return null;
  // Sorted and distinct, in the order of key parts.
  const parts = new Map(found.map(fold).map((text) => [packPart(columnPart(plain, text)), text]));
  return [...parts.keys()].sort().map((part) => parts.get(part));
}

/** A text as a case-folded field compares it. Throws `invalid_value` for one that JavaScript cannot fold. */
export function fold(value: unknown): unknown {
  if (typeof value !== "string") return value;
  const folded = casefold(value);
  if (folded !== undefined) return folded;
  throw new ModelsError(
    "invalid_value",
    "the text has letters that JavaScript does not fold as Python does",
    "Latin and Cyrillic letters can be folded; write other texts in Python.",
  );
}
