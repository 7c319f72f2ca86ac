// What a record has in an index: a function of its stored document, as in Python.
import { foldedField, type Index, isComputed, neededColumns, type SpanTest } from "./catalogue.ts";
import { columnPart, columnValues } from "./columns.ts";
import type { Document } from "./documents.ts";
import { ModelsError } from "./errors.ts";
import { packKey, packPart } from "./keys.ts";
import type { Key } from "./store.ts";

/** The most entries of one record in one index, as Python allows them. */
const MAX_FAN_OUT = 1_000;

/** One entry of an index; `slot` if its key has a single owner, and no primary key in it. */
export interface Entry {
  readonly key: Key;
  readonly packed: string;
  readonly slot: boolean;
}

/** The entries of a document in an index. Throws `invalid_value`, or `too_many_entries`. */
export function entriesOf(index: Index, document: Document, pk: Key): Entry[] {
  if (
    index.where !== undefined && !index.where.some((tests) => tests.every((test) => holds(test, document)))
  ) {
    return [];
  }
  let heads: Key[] = [[index.prefix]];
  let hasNull = false;
  for (const column of index.columns) {
    const values = columnValues(column, document);
    if (values === undefined) {
      const hint = "Store it in the form that Python stores.";
      const about = { index: index.name, field: column.name };
      throw new ModelsError(
        "invalid_value",
        "the value is absent, or not of the form of the column",
        hint,
        about,
      );
    }
    hasNull ||= values.includes(null);
    const parts = values.map((value) => {
      try {
        return columnPart(column, value);
      } catch (error) {
        throw error instanceof ModelsError ? error.about({ index: index.name, field: column.name }) : error;
      }
    });
    const distinct = new Map(parts.map((part) => [packPart(part), part]));
    heads = heads.flatMap((head) => [...distinct.values()].map((part) => [...head, part]));
    if (heads.length > MAX_FAN_OUT) {
      const hint = `At most ${MAX_FAN_OUT} different values.`;
      throw new ModelsError("too_many_entries", "a record has too many values", hint, { index: index.name });
    }
  }
  if (hasNull && index.nulls === "skip") return [];
  const slot = index.unique && !(hasNull && index.nulls === "distinct");
  return heads.map((head) => {
    const key = slot ? head : [...head, ...pk];
    return { key, packed: packKey(key), slot };
  });
}

/** The same for a stored document; none where no writer can have made any. */
export function storedEntries(index: Index, document: Document, pk: Key): Entry[] {
  try {
    return entriesOf(index, document, pk);
  } catch (error) {
    if (error instanceof ModelsError) return [];
    throw error;
  }
}

function holds({ column, spans }: SpanTest, document: Document): boolean {
  const values = columnValues(column, document);
  if (values === undefined) return false;
  const part = packPart(columnPart(column, values[0]));
  return spans.some(({ start, end }) => start <= part && part < end);
}

/** The value of an entry. */
export function entryValue(index: Index, entry: Entry, document: Document, pk: Key): unknown {
  if (index.store === "record") return document;
  if (entry.slot) return pk;
  if (!index.include.length) return new Uint8Array(0);
  return Object.fromEntries(index.include.map((name) => [name, document[name] ?? null]));
}

/** The fields that a new document must have, because an index depends on them. */
export function requiredFields(index: Index): string[] {
  const columns = neededColumns(index).map((column) =>
    isComputed(column) ? foldedField(column) : column.path[0]
  );
  return [...columns.filter((name) => name !== undefined), ...index.include];
}
