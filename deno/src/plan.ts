// One atomic operation for one record with all its index entries.
import {
  type Catalogue,
  type CollectionCatalogue,
  HEADER_KEY,
  isMaintained,
  removalRefusal,
  writeRefusal,
} from "./catalogue.ts";
import type { Document } from "./documents.ts";
import { primaryKeyOf, shownKey } from "./documents.ts";
import { entriesOf, entryValue, storedEntries } from "./entries.ts";
import { ModelsError } from "./errors.ts";
import { isSameKey } from "./keys.ts";
import type { Index } from "./catalogue.ts";
import type { Key, KvStore, StoreAtomic, StoreEntry } from "./store.ts";

/** What Deno KV takes in one atomic operation. */
const MAX_CHECKS = 100;
const MAX_MUTATIONS = 1_000;

/** A record as it was read, and as it shall be; null where there is none. */
export interface Change {
  readonly pk: Key;
  readonly old: Document | null;
  readonly versionstamp: string | null;
  readonly document: Document | null;
  /** The rows of unique slots that were read, by their packed keys; others are taken as free. */
  readonly slots: ReadonlyMap<string, StoreEntry>;
}

/** An operation that is ready to be committed, and the slots that it claims. */
export interface Plan {
  readonly atomic: StoreAtomic;
  readonly claimed: readonly Key[];
}

/** Throw why a collection cannot be written, or records of it not be removed. */
export function requireWritable(
  catalogue: Catalogue,
  collection: CollectionCatalogue,
  removes: boolean,
): void {
  const refusal = writeRefusal(catalogue, collection) ??
    (removes ? removalRefusal(catalogue, collection.name) : undefined);
  if (refusal !== undefined) throw refusal;
}

/**
 * The operation for a change: it checks the header, the record as read, and each unique slot that it claims.
 *
 * All entries of the record are written, also those that stay as they are. A record that expires loses its deadline
 * when it is written, because Deno KV tells no deadlines, and its entries must not keep theirs.
 */
export function planWrite(
  kv: KvStore,
  catalogue: Catalogue,
  collection: CollectionCatalogue,
  change: Change,
): Plan {
  const { pk, old, document } = change;
  const recordKey: Key = [collection.name, ...pk];
  const checks = [
    { key: HEADER_KEY, versionstamp: catalogue.versionstamp },
    { key: recordKey, versionstamp: change.versionstamp },
  ];
  const deleted = new Map<string, Key>();
  const written = new Map<string, { key: Key; value: unknown }>();
  const claimed: Key[] = [];
  for (const index of collection.indexes.filter(isMaintained)) {
    for (const { key, packed } of old === null ? [] : storedEntries(index, old, pk)) deleted.set(packed, key);
    for (const entry of document === null ? [] : entriesOf(index, document, pk)) {
      if (entry.slot && !deleted.has(entry.packed)) {
        const row = change.slots.get(entry.packed);
        requireFree(collection, index, row, pk);
        checks.push({ key: entry.key, versionstamp: row?.versionstamp ?? null });
        claimed.push(entry.key);
      }
      written.set(entry.packed, { key: entry.key, value: entryValue(index, entry, document!, pk) });
    }
  }
  for (const packed of written.keys()) deleted.delete(packed);
  requireRoom(checks.length + 1, written.size + deleted.size + 2); // with the record and the token
  const atomic = kv.atomic().check(...checks);
  if (document === null) atomic.delete(recordKey);
  else atomic.set(recordKey, document);
  for (const key of deleted.values()) atomic.delete(key);
  for (const { key, value } of written.values()) atomic.set(key, value);
  return { atomic, claimed };
}

function requireRoom(checks: number, mutations: number): void {
  if (checks <= MAX_CHECKS && mutations <= MAX_MUTATIONS) return;
  throw new ModelsError(
    "too_many_entries",
    `the write needs ${checks} checks and ${mutations} mutations`,
    `Deno KV takes ${MAX_CHECKS} and ${MAX_MUTATIONS}: store fewer values in the record, or write it in Python.`,
  );
}

function requireFree(
  collection: CollectionCatalogue,
  index: Index,
  row: StoreEntry | undefined,
  pk: Key,
): void {
  if (row === undefined || row.versionstamp === null) return;
  const owner = slotOwner(collection, index, row);
  if (isSameKey(owner, pk)) return;
  const existingKey = shownKey(collection, owner);
  throw new ModelsError(
    "unique_violation",
    "another record has the same unique value",
    "Choose another value, or change that record.",
    { collection: collection.name, index: index.name, existingKey },
  );
}

/** The primary key of the record that has a unique slot. */
export function slotOwner(collection: CollectionCatalogue, index: Index, row: StoreEntry): Key {
  if (index.store === "record") return primaryKeyOf(collection, row.value as Document);
  const value = row.value as Key;
  return index.include.length ? value[0] as unknown as Key : value;
}
