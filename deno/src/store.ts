/** One part of a key, as in Deno KV. */
export type KeyPart = Uint8Array | string | number | bigint | boolean;

/** A key, as in Deno KV. */
export type Key = readonly KeyPart[];

/** The value of a key; value and versionstamp are null where it is absent. */
export interface StoreEntry {
  /** The key. */
  readonly key: readonly unknown[];
  /** The value, or null. */
  readonly value: unknown;
  /** The version of the last write of the key, or null. */
  readonly versionstamp: string | null;
}

/** A range of keys. */
export type StoreSelector = { start: Key; end: Key } | { prefix: Key; start: Key };

/** Options of `list`, as in Deno KV. */
export interface StoreListOptions {
  /** The most entries to list. */
  limit?: number;
  /** The position after which to go on. */
  cursor?: string;
  /** List in descending order. */
  reverse?: boolean;
  /** The number of entries of one read. */
  batchSize?: number;
}

/** The entries of a range. */
export interface StoreIterator extends AsyncIterableIterator<StoreEntry> {
  /** The position after the last entry. */
  readonly cursor: string;
}

/** An atomic operation. */
export interface StoreAtomic {
  /** Require versions of keys; null: a key is absent. */
  check(...checks: { key: Key; versionstamp: string | null }[]): this;
  /** Store a value, for a number of milliseconds if given. */
  set(key: Key, value: unknown, options?: { expireIn?: number }): this;
  /** Delete a key. */
  delete(key: Key): this;
  /** Apply everything, or nothing if a check fails. */
  commit(): Promise<{ ok: true; versionstamp: string } | { ok: false }>;
}

/** The methods of `Deno.Kv` that this module calls, so that any client of Deno KV with them will do. */
export interface KvStore {
  /** Read some keys in one snapshot. */
  getMany(keys: readonly Key[]): Promise<StoreEntry[]>;
  /** Read a range of keys. */
  list(selector: StoreSelector, options?: StoreListOptions): StoreIterator;
  /** Begin an atomic operation. */
  atomic(): StoreAtomic;
}
