// The catalogue in the header of a store: the collections, their fields and the state of each index.
import { type Column, isKnownType } from "./columns.ts";
import { ModelsError } from "./errors.ts";
import type { StoreEntry } from "./store.ts";
import { namesCollection, unknownItems, unknownParts, unknownSections } from "./unknown.ts";

/** The key of the catalogue, which every write checks. */
export const HEADER_KEY = ["__kvmodels__", "header"] as const;

const NEWEST_FORMAT = 2;
const MAINTAINED: ReadonlySet<string> = new Set(["write_only", "pending", "readable"]);

/** A span of packed parts: from the first inside to the first outside. */
export interface Span {
  readonly start: string;
  readonly end: string;
}

/** A test of the condition of a partial index. */
export interface SpanTest {
  readonly column: Column;
  readonly spans: readonly Span[];
}

/** One generation of an index. */
export interface Index {
  readonly name: string;
  /** The first part of the keys of its entries. */
  readonly prefix: string;
  readonly state: string;
  readonly columns: readonly Column[];
  readonly unique: boolean;
  readonly nulls: "distinct" | "skip" | "equal";
  readonly store: "record" | null;
  readonly include: readonly string[];
  /** Alternatives, each a list of tests that all hold; undefined: every record has entries. */
  readonly where?: readonly (readonly SpanTest[])[];
  readonly aggregate: boolean;
  /** The collection that a foreign key refers to; of an unknown description, what it has in this place. */
  readonly reference?: unknown;
  /** The items of its description that this module does not know. */
  readonly unknown: readonly string[];
}

/** One collection, as the header lists it. */
export interface CollectionCatalogue {
  readonly name: string;
  readonly primaryKey: readonly Column[];
  /** The types of all fields by name, as text. */
  readonly fields: ReadonlyMap<string, string>;
  /** The column types of the fields that could be indexed. */
  readonly types: ReadonlyMap<string, string>;
  readonly schemaVersion: number;
  /** The lowest schema version that a record may have. */
  readonly oldest: number;
  /** The version that has changed a field last. */
  readonly upgraded: ReadonlyMap<string, number>;
  readonly indexes: readonly Index[];
  /** Whether it is being dropped. */
  readonly dropping: boolean;
  /** The sections that this module does not know. */
  readonly unknown: readonly string[];
}

/** The catalogue of a store at one version of its header. */
export interface Catalogue {
  readonly versionstamp: string;
  readonly collections: ReadonlyMap<string, CollectionCatalogue>;
}

/** The catalogue in the row of the header. Throws `no_catalogue`, `loading` or `newer_format`. */
export function readCatalogue(row: StoreEntry): Catalogue {
  if (row.versionstamp === null) {
    throw new ModelsError(
      "no_catalogue",
      "the store has no models",
      'Open it once in Python: Database(url, models=[...], codec="v8").',
    );
  }
  try {
    const header = row.value as Raw;
    if (header.loading != null) {
      throw new ModelsError("loading", "a dump is being loaded into the store", "Wait for the load to end.");
    }
    if (Number(header.format) > NEWEST_FORMAT) {
      throw new ModelsError("newer_format", `the store has format ${header.format}`, "Update this module.");
    }
    const unknown = unknownSections(header);
    if (unknown.length) {
      throw new ModelsError(
        "newer_format",
        `the header has the unknown sections ${unknown}`,
        "Update this module.",
      );
    }
    const listed = Object.entries(header.collections as Raw);
    const collections = new Map(listed.map(([name, value]) => [name, collectionOf(name, value)]));
    return { versionstamp: row.versionstamp, collections };
  } catch (error) {
    if (error instanceof ModelsError) throw error;
    throw new ModelsError(
      "no_catalogue",
      `the header cannot be read (${error})`,
      "Restore the store from a backup.",
    );
  }
}

// deno-lint-ignore no-explicit-any
type Raw = any;

function collectionOf(name: string, value: Raw): CollectionCatalogue {
  return {
    name,
    primaryKey: value.primary_key.map(columnOf),
    fields: new Map(Object.entries(value.fields)),
    types: new Map(Object.entries(value.columns)),
    schemaVersion: Number(value.schema_version),
    oldest: Number(value.oldest ?? value.schema_version),
    upgraded: new Map(
      Object.entries(value.upgraded ?? {}).map(([field, version]) => [field, Number(version)]),
    ),
    indexes: value.indexes.map((index: Raw) => indexOf(name, index)),
    dropping: value.dropping === true,
    unknown: unknownParts(value),
  };
}

function indexOf(collection: string, listed: Raw): Index {
  const { name, generation, state, signature } = listed;
  const prefix = `${collection}_by_${name}`;
  const unknown = unknownItems(listed);
  const known = {
    name,
    prefix: Number(generation) === 1 ? prefix : `${prefix}~${generation}`,
    state,
    unknown,
  };
  if (unknown.length) {
    const nothing = {
      columns: [],
      unique: false,
      nulls: "distinct",
      store: null,
      include: [],
      aggregate: false,
    } as const;
    return { ...known, ...nothing, reference: signature.reference };
  }
  return {
    ...known,
    columns: signature.columns.map(columnOf),
    unique: signature.unique,
    nulls: signature.nulls,
    store: signature.store ?? null,
    include: signature.include ?? [],
    aggregate: signature.sums !== undefined,
    ...(signature.reference == null ? {} : { reference: signature.reference }),
    ...(signature.where === undefined
      ? {}
      : { where: signature.where.map((tests: Raw) => tests.map(testOf)) }),
  };
}

function testOf([column, spans]: Raw): SpanTest {
  return {
    column: columnOf(column),
    spans: spans.map(([start, end]: [string, string]) => ({ start: unhex(start), end: unhex(end) })),
  };
}

function columnOf([name, type, direction, nullable, place]: Raw): Column {
  return {
    name,
    type,
    descending: direction === "desc",
    nullable,
    many: place?.many ?? false,
    path: place?.path ?? [name],
  };
}

function unhex(text: string): string {
  return (text.match(/../g) ?? []).map((byte) => String.fromCharCode(parseInt(byte, 16))).join("");
}

/** The field whose folded value a column holds; undefined for every other column. */
export function foldedField(column: Column): string | undefined {
  const suffix = "~casefold";
  const stored = isComputed(column) ? column.path[2]! : "";
  return stored === `${column.name}${suffix}` ? column.name : undefined;
}

/** Whether the value of a column is the result of a function. */
export function isComputed(column: Column): boolean {
  return column.path[0] === "$kv";
}

/** Whether writers keep the entries of an index. */
export function isMaintained(index: Index): boolean {
  return MAINTAINED.has(index.state) || index.unknown.includes("state");
}

/** Every column that the entries of an index depend on. */
export function neededColumns(index: Index): Column[] {
  return [...index.columns, ...(index.where ?? []).flat().map((test) => test.column)];
}

/** Why this module cannot write records of a collection; undefined if it can. */
export function writeRefusal(catalogue: Catalogue, collection: CollectionCatalogue): ModelsError | undefined {
  if (collection.unknown.length) {
    const message = `the catalogue has parts that are not known: ${collection.unknown}`;
    return new ModelsError("newer_format", message, "Update this module.", { collection: collection.name });
  }
  if (collection.dropping) {
    const hint = "Finish db.drop_collection() in Python.";
    return new ModelsError("building", "the collection is being dropped", hint, {
      collection: collection.name,
    });
  }
  for (const one of catalogue.collections.values()) {
    for (const index of one.indexes.filter(isMaintained)) {
      if (index.unknown.length && namesCollection(index.reference, collection.name)) {
        return unknownIndex(index).about({ collection: one.name, index: index.name });
      }
    }
  }
  for (const index of collection.indexes) {
    const error = indexRefusal(index);
    if (error !== undefined) return error.about({ collection: collection.name, index: index.name });
  }
  const unknown = collection.primaryKey.find((column) => !isKnownType(column.type));
  return unknown &&
    refusal(`its primary key has the unknown type ${unknown.type}`, "Update this module.").about({
      collection: collection.name,
    });
}

const IN_PYTHON = "Write its records in Python; this module can still read them.";

function refusal(message: string, hint: string = IN_PYTHON): ModelsError {
  return new ModelsError("unsupported_index", message, hint);
}

function unknownIndex(index: Index): ModelsError {
  return refusal(`its description has parts that are not known: ${index.unknown}`, "Update this module.");
}

function indexRefusal(index: Index): ModelsError | undefined {
  if (index.state === "dropping") return undefined;
  if (index.unknown.length) return unknownIndex(index);
  if (index.state !== "readable") {
    return new ModelsError(
      "building",
      `the index is ${index.state}`,
      "Run db.apply() in Python, then write again.",
    );
  }
  if (index.reference !== undefined) {
    return new ModelsError("has_references", "it is the index of a foreign key", IN_PYTHON);
  }
  if (index.aggregate) return refusal("it is an aggregate index, whose counters only Python keeps");
  if (index.unique && index.include.length) return refusal("it is unique and has include=");
  for (const column of neededColumns(index)) {
    if (isComputed(column) && foldedField(column) === undefined) {
      return refusal(`the column ${column.name} is computed by a function of Python`);
    }
    if (!isKnownType(column.type)) {
      return refusal(`the column ${column.name} has the unknown type ${column.type}`, "Update this module.");
    }
  }
  return undefined;
}

/** Why records of a collection cannot be removed: others may refer to them; undefined if none can. */
export function removalRefusal(catalogue: Catalogue, name: string): ModelsError | undefined {
  for (const one of catalogue.collections.values()) {
    for (const index of one.indexes) {
      if (namesCollection(index.reference, name) && isMaintained(index)) {
        const message = `records of ${one.name} refer to records of this collection`;
        return new ModelsError("referenced", message, "Remove its records in Python.", { collection: name });
      }
    }
  }
  return undefined;
}

/** The generation of an index that can be read. Throws `unknown_index` or `index_not_readable`. */
export function readableIndex(collection: CollectionCatalogue, name: string): Index {
  const found = collection.indexes.filter((index) => index.name === name && !index.aggregate);
  const about = { collection: collection.name, index: name };
  if (!found.length) {
    const names = collection.indexes.filter((index) => !index.aggregate).map((index) => index.name);
    throw new ModelsError(
      "unknown_index",
      "there is no such index",
      `It has: ${names.join(", ") || "none"}.`,
      about,
    );
  }
  const unknown = found.findLast((one) => isMaintained(one) && one.unknown.length);
  const index = found.findLast((one) => one.state === "readable" && !one.unknown.length);
  if (index === undefined && unknown !== undefined) throw unknownIndex(unknown).about(about);
  const behind = index &&
    neededColumns(index).some((column) =>
      (collection.upgraded.get(column.name.split(".")[0]!) ?? 1) > collection.oldest
    );
  if (index === undefined || behind) {
    const message = behind ? "some records were not migrated yet" : `the index is ${found[0]!.state}`;
    throw new ModelsError("index_not_readable", message, "Run db.apply() in Python.", about);
  }
  return index;
}
