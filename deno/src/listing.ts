// Ranges of an index or of the primary key, and the records in them.
import { type CollectionCatalogue, foldedField, type Index, readableIndex } from "./catalogue.ts";
import { type Column, columnPart, TEXT_TYPES } from "./columns.ts";
import { type Document, fold, isNamed, withoutOwn } from "./documents.ts";
import { storedEntries } from "./entries.ts";
import { ModelsError } from "./errors.ts";
import { keyAfter, packKey, textAfter } from "./keys.ts";
import { slotOwner } from "./plan.ts";
import type { Session } from "./session.ts";
import type { Key, StoreEntry, StoreIterator, StoreListOptions, StoreSelector } from "./store.ts";

/** A record with its primary key and the versionstamp of its last write. */
export interface ModelEntry<T> {
  /** The values of the primary key. */
  readonly key: readonly unknown[];
  /** The record. */
  readonly value: T;
  /** The version of the last write of the record. */
  readonly versionstamp: string;
}

/**
 * Which records to list, and in which order.
 *
 * As in a selector of `Deno.Kv.list`, but of the values of the columns of an index, or of the primary key without
 * `index`. `start` and `end` begin with the values of `prefix`, if both are given; `start` is included, `end` is not.
 */
export interface ModelSelector {
  /** The name of an index; without it, records are listed by their primary key. */
  readonly index?: string;
  /** The values of the first columns. */
  readonly prefix?: readonly unknown[];
  /** The values of the first record. */
  readonly start?: readonly unknown[];
  /** The values of the first record after the range. */
  readonly end?: readonly unknown[];
  /** The beginning of the text in the column after `prefix`. */
  readonly startsWith?: string;
}

/** Options of a list, as of `Deno.Kv.list`. */
export interface ModelListOptions {
  /** The most records to list. */
  readonly limit?: number;
  /** The position after which to go on: the `cursor` of an earlier list with the same selector. */
  readonly cursor?: string;
  /** List in descending order. */
  readonly reverse?: boolean;
  /** The number of entries of one read; 100 by default. */
  readonly batchSize?: number;
}

interface Range {
  readonly selector: StoreSelector;
  /** The packed keys of the range: from the first inside to the first outside. */
  readonly start: string;
  readonly end: string;
}

/** Iterates over records. */
export class ModelIterator<T> implements AsyncIterableIterator<ModelEntry<T>> {
  readonly #found: AsyncGenerator<[ModelEntry<T>, string], boolean>;
  #cursor: string;

  /** Lists are made by `Collection.list`. */
  constructor(session: Session, name: string, selector: ModelSelector, options: ModelListOptions) {
    const { limit, cursor = "" } = options;
    if (limit !== undefined && !(Number.isSafeInteger(limit) && limit > 0)) {
      throw new ModelsError(
        "invalid_argument",
        "limit is not a positive integer",
        "Leave it out to list all records.",
      );
    }
    this.#cursor = cursor;
    this.#found = found<T>(session, name, selector, options);
  }

  /** The position after the last record, for the option `cursor`; "" once there are no more records in the range. */
  get cursor(): string {
    return this.#cursor;
  }

  /** The next record. */
  async next(): Promise<IteratorResult<ModelEntry<T>, undefined>> {
    const { done, value } = await this.#found.next();
    if (!done) {
      this.#cursor = value[1];
      return { done: false, value: value[0] };
    }
    if (value) this.#cursor = "";
    return { done: true, value: undefined };
  }

  /** End the list early. */
  async return(): Promise<IteratorResult<ModelEntry<T>, undefined>> {
    await this.#found.return(false);
    return { done: true, value: undefined };
  }

  /** The iterator itself. */
  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The remaining records as an array. */
  async toArray(): Promise<ModelEntry<T>[]> {
    const records: ModelEntry<T>[] = [];
    for await (const record of this) records.push(record);
    return records;
  }
}

/** The records of a list with the cursors after them; at the end, whether there are no more in the range. */
async function* found<T>(
  session: Session,
  name: string,
  selector: ModelSelector,
  options: ModelListOptions,
): AsyncGenerator<[ModelEntry<T>, string], boolean> {
  const collection = session.collection(name);
  const index = selector.index === undefined ? undefined : readableIndex(collection, selector.index);
  const columns = index?.columns ?? collection.primaryKey;
  const range = rangeOf([index?.prefix ?? name], columns, selector);
  const { cursor, reverse = false, batchSize = 100, limit = Infinity } = options;
  const storeOptions: StoreListOptions = { reverse, batchSize, ...(cursor === undefined ? {} : { cursor }) };
  const entries = session.kv.list(range.selector, storeOptions);
  let count = 0;
  while (true) {
    const batch = await take(entries, Math.min(batchSize, limit - count));
    if (!batch.length) return true;
    const records = index === undefined
      ? batch.map(([row]) => recordOf<T>(collection, row))
      : await recordsOf<T>(session, name, index, batch, range, reverse);
    for (const [at, record] of records.entries()) {
      if (record === undefined) continue;
      count += 1;
      yield [record, batch[at]![1]];
      if (count >= limit) return false;
    }
  }
}

/** The next entries, each with the cursor after it. */
async function take(entries: StoreIterator, most: number): Promise<[StoreEntry, string][]> {
  const batch: [StoreEntry, string][] = [];
  while (batch.length < most) {
    const { done, value } = await entries.next();
    if (done) break;
    batch.push([value, entries.cursor]);
  }
  return batch;
}

/** The record of a row; undefined for a row that is not a record of the collection. */
export function recordOf<T>(collection: CollectionCatalogue, row: StoreEntry): ModelEntry<T> | undefined {
  const { value, versionstamp } = row;
  if (versionstamp === null || typeof value !== "object" || value === null) return undefined;
  const document = value as Document;
  if (!isNamed(collection, document, row.key.slice(1) as Key)) return undefined;
  const key = collection.primaryKey.map((column) => document[column.name]);
  return { key, value: withoutOwn(document) as T, versionstamp };
}

/**
 * The records that entries of an index lead to, each at its first entry in the range.
 *
 * A record that has changed since the entry was read is left out, unless it still has the entry.
 */
async function recordsOf<T>(
  session: Session,
  name: string,
  index: Index,
  batch: readonly [StoreEntry, string][],
  range: Range,
  reverse: boolean,
): Promise<(ModelEntry<T> | undefined)[]> {
  const collection = session.collection(name);
  const pks = batch.map(([row]) => ownerOf(collection, index, row));
  const rows = await session.read(pks.map((pk) => [name, ...pk]));
  requireSame(session, name, index);
  return rows.map((row, at) => {
    const record = recordOf<T>(collection, row);
    if (record === undefined) return undefined;
    const keys = storedEntries(index, row.value as Document, pks[at]!).map((entry) => entry.packed)
      .filter((packed) => range.start <= packed && packed < range.end).sort();
    const first = reverse ? keys.at(-1) : keys[0];
    return first === packKey(batch[at]![0].key as Key) ? record : undefined;
  });
}

function requireSame(session: Session, name: string, index: Index): void {
  const current = readableIndex(session.collection(name), index.name);
  if (current.prefix === index.prefix) return;
  const hint = "Begin the list again.";
  throw new ModelsError("schema_changed", "the index was replaced while it was read", hint, {
    collection: name,
    index: index.name,
  });
}

/** The primary key of the record that an entry leads to. */
function ownerOf(collection: CollectionCatalogue, index: Index, row: StoreEntry): Key {
  const parts = row.key as Key;
  const isSlot = parts.length === index.columns.length + 1;
  return isSlot ? slotOwner(collection, index, row) : parts.slice(index.columns.length + 1);
}

/** The key parts of values of the first columns. Throws `invalid_argument` or `invalid_value`. */
export function partsOf(columns: readonly Column[], values: readonly unknown[]): Key {
  if (values.length > columns.length) {
    const names = columns.map((column) => column.name).join(", ");
    throw new ModelsError(
      "invalid_argument",
      "there are more values than columns",
      `The columns are: ${names}.`,
    );
  }
  return values.map((value, at) => {
    const column = columns[at]!;
    try {
      return columnPart(
        { ...column, nullable: true },
        foldedField(column) === undefined ? value : fold(value),
      );
    } catch (error) {
      throw error instanceof ModelsError ? error.about({ field: column.name }) : error;
    }
  });
}

function rangeOf(head: Key, columns: readonly Column[], selector: ModelSelector): Range {
  const { prefix = [], startsWith } = selector;
  const before = [...head, ...partsOf(columns, prefix)];
  let start: Key = selector.start === undefined ? before : [...head, ...partsOf(columns, selector.start)];
  let end: Key | undefined = selector.end === undefined
    ? keyAfter(before)
    : [...head, ...partsOf(columns, selector.end)];
  if (startsWith !== undefined) {
    if (selector.start !== undefined || selector.end !== undefined) {
      throw new ModelsError(
        "invalid_argument",
        "startsWith cannot be combined with start or end",
        "Leave one out.",
      );
    }
    const text = textPart(columns[prefix.length], startsWith);
    const after = textAfter(text);
    start = [...before, text];
    if (after !== undefined) end = [...before, after];
  }
  const packedBefore = packKey(before);
  for (const bound of [start, end === undefined || selector.end === undefined ? start : end]) {
    if (!packKey(bound).startsWith(packedBefore)) {
      throw new ModelsError(
        "invalid_argument",
        "start and end do not begin with prefix",
        "Give them all its values.",
      );
    }
  }
  return {
    selector: end === undefined ? { prefix: before.slice(0, -1), start } : { start, end },
    start: packKey(start),
    end: end === undefined ? `${packKey(before.slice(0, -1))}\xff` : packKey(end),
  };
}

function textPart(column: Column | undefined, text: string): string {
  if (column === undefined || column.descending || !TEXT_TYPES.has(column.type)) {
    const hint = "Use it for an ascending column of texts, after `prefix`.";
    throw new ModelsError("invalid_argument", "startsWith does not apply to this column", hint);
  }
  return foldedField(column) === undefined ? text : fold(text) as string;
}
