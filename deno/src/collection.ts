// The records of one collection.
import { type CollectionCatalogue, isMaintained, readableIndex, writeRefusal } from "./catalogue.ts";
import {
  type Document,
  isNamed,
  primaryKeyOf,
  shownKey,
  storedDocument,
  versionOf,
  withoutOwn,
} from "./documents.ts";
import { requiredFields } from "./entries.ts";
import { ModelsError } from "./errors.ts";
import { packKey } from "./keys.ts";
import {
  type ModelEntry,
  ModelIterator,
  type ModelListOptions,
  type ModelSelector,
  partsOf,
  recordOf,
} from "./listing.ts";
import { type Plan, planWrite, requireWritable, slotOwner } from "./plan.ts";
import { Attempts } from "./retries.ts";
import type { Session } from "./session.ts";
import type { Key, StoreEntry } from "./store.ts";
import { Token } from "./tokens.ts";

/** Options of a collection. */
export interface CollectionOptions {
  /** Fields that a record may lack: the model has a default for them, or they were removed from it. */
  readonly optional?: readonly string[];
}

/** The condition of a write. */
export interface WriteOptions {
  /** Write only if the record has this versionstamp; otherwise the call throws `stale_record`. */
  readonly versionstamp?: string;
}

/** The new values of some fields, or a function that returns them for the stored record. */
export type Changes<T> = Partial<T> | ((record: T) => Partial<T>);

/** What a write makes of the stored record; null removes it, undefined leaves everything as it is. */
type Proposal = (old: StoredRecord | null) => Document | null | undefined;

interface StoredRecord {
  readonly document: Document;
  readonly versionstamp: string;
}

/** Finds and writes the records of one collection; `T` is the type of a record. */
export class Collection<T extends object = Document> {
  /** The name of the collection. */
  readonly name: string;
  readonly #session: Session;
  readonly #optional: readonly string[];

  /** Collections are made by `Models.collection`. */
  constructor(session: Session, name: string, options: CollectionOptions) {
    this.#session = session;
    this.name = name;
    this.#optional = options.optional ?? [];
    session.collection(name);
  }

  /** Why this module cannot write records of the collection; undefined if it can. */
  get readOnly(): ModelsError | undefined {
    return writeRefusal(this.#session.catalogue, this.#catalogue);
  }

  /** The record with a primary key, or null. A key of several fields is an array. */
  async get(key: unknown): Promise<ModelEntry<T> | null> {
    const [found] = await this.getMany([key]);
    return found!;
  }

  /** The records with some primary keys, in their order; null where there is none. */
  async getMany(keys: readonly unknown[]): Promise<(ModelEntry<T> | null)[]> {
    const rows = await this.#session.read(keys.map((key) => [this.name, ...this.#primaryKey(key)]));
    return rows.map((row) => recordOf<T>(this.#catalogue, row) ?? null);
  }

  /** The record with a value of a unique index, or null. The values of several columns are an array. */
  async getBy(indexName: string, values: unknown): Promise<ModelEntry<T> | null> {
    const attempts = new Attempts(this.#session.retry);
    while (true) {
      const index = readableIndex(this.#catalogue, indexName);
      const given = Array.isArray(values) ? values : [values];
      if (!index.unique || given.length !== index.columns.length) {
        const hint = "Use list({ index, prefix }) for other indexes, and for some of the columns.";
        throw new ModelsError("invalid_argument", "getBy takes all values of a unique index", hint, {
          collection: this.name,
          index: indexName,
        });
      }
      if (given.includes(null) && index.nulls !== "equal") {
        const [first] = await this.list({ index: indexName, prefix: given }, { limit: 1 }).toArray();
        return first ?? null;
      }
      const slotKey: Key = [index.prefix, ...partsOf(index.columns, given)];
      const [slot] = await this.#session.read([slotKey]);
      if (slot!.versionstamp === null) {
        if (readableIndex(this.#catalogue, indexName).prefix === index.prefix) return null;
      } else {
        const owner = slotOwner(this.#catalogue, index, slot!);
        const [again, row] = await this.#session.read([slotKey, [this.name, ...owner]]);
        if (again!.versionstamp === slot!.versionstamp) return recordOf<T>(this.#catalogue, row!) ?? null;
      }
      if (!(await attempts.next())) throw attempts.exhausted();
    }
  }

  /** The records of a range of an index, or of the primary key; see `ModelSelector`. */
  list(selector: ModelSelector = {}, options: ModelListOptions = {}): ModelIterator<T> {
    return new ModelIterator<T>(this.#session, this.name, selector, options);
  }

  /** Store a new record. Throws `already_exists` or `unique_violation`. */
  async insert(record: T): Promise<ModelEntry<T>> {
    const pk = primaryKeyOf(this.#catalogue, record as Document);
    const written = await this.#write(pk, false, (old) => {
      if (old !== null) {
        throw this.#error(
          "already_exists",
          "the primary key is in use",
          "Use replace or patch.",
          record as Document,
        );
      }
      return record as Document;
    });
    return written!;
  }

  /** Store a record in place of the one with its primary key. Throws `not_found`, `stale_record`, `unique_violation`. */
  async replace(record: T, options: WriteOptions = {}): Promise<ModelEntry<T>> {
    const pk = primaryKeyOf(this.#catalogue, record as Document);
    const written = await this.#write(pk, true, (old) => {
      this.#requireCurrent(old, options, pk);
      return { ...this.#undeclared(old!.document), ...record };
    });
    return written!;
  }

  /**
   * Change some fields of a record. A function is called again after a conflict, with the record as it is then.
   *
   * Throws `not_found`, `stale_record` or `unique_violation`.
   */
  async patch(key: unknown, changes: Changes<T>, options: WriteOptions = {}): Promise<ModelEntry<T>> {
    const pk = this.#primaryKey(key);
    const written = await this.#write(pk, true, (old) => {
      this.#requireCurrent(old, options, pk);
      const record = withoutOwn(old!.document);
      const changed = typeof changes === "function" ? changes(structuredClone(record) as T) : changes;
      const document = { ...record, ...changed };
      if (!isNamed(this.#catalogue, document, pk)) {
        const hint = "Remove the record and insert it again.";
        throw this.#error("invalid_argument", "the primary key cannot be changed", hint, record);
      }
      return document;
    });
    return written!;
  }

  /** Remove a record; false if there is none. Throws `stale_record`, or `referenced` if others may refer to it. */
  async remove(key: unknown, options: WriteOptions = {}): Promise<boolean> {
    const pk = this.#primaryKey(key);
    let removed = false;
    await this.#write(pk, true, (old) => {
      removed = old !== null;
      if (old === null && options.versionstamp === undefined) return undefined;
      this.#requireCurrent(old, options, pk);
      return null;
    }, true);
    return removed;
  }

  get #catalogue(): CollectionCatalogue {
    return this.#session.collection(this.name);
  }

  #primaryKey(key: unknown): Key {
    const columns = this.#catalogue.primaryKey;
    const given = Array.isArray(key) ? key : [key];
    if (given.length === columns.length && !given.includes(null)) return partsOf(columns, given);
    const names = columns.map((column) => column.name).join(", ");
    throw new ModelsError("invalid_argument", "this is not a primary key", `Give the values of: ${names}.`, {
      collection: this.name,
    });
  }

  #undeclared(document: Document): Document {
    const { fields } = this.#catalogue;
    return Object.fromEntries(Object.entries(withoutOwn(document)).filter(([name]) => !fields.has(name)));
  }

  #optionalFields(): ReadonlySet<string> {
    const { primaryKey, indexes } = this.#catalogue;
    const optional = new Set(this.#optional);
    for (const name of indexes.filter(isMaintained).flatMap(requiredFields)) optional.delete(name);
    for (const column of primaryKey) optional.delete(column.name);
    return optional;
  }

  #error(code: ModelsError["code"], problem: string, hint: string, record: Document): ModelsError {
    const key = this.#catalogue.primaryKey.map((column) => record[column.name]);
    return new ModelsError(code, problem, hint, { collection: this.name, key });
  }

  #requireCurrent(old: StoredRecord | null, options: WriteOptions, pk: Key): void {
    const { versionstamp } = options;
    if (versionstamp !== undefined && versionstamp !== old?.versionstamp) {
      const hint = "Read it again, and decide again.";
      throw new ModelsError("stale_record", "the record has changed since it was read", hint, {
        collection: this.name,
        key: shownKey(this.#catalogue, pk),
      });
    }
    if (old === null) {
      throw new ModelsError("not_found", "there is no record with this primary key", "Use insert.", {
        collection: this.name,
        key: shownKey(this.#catalogue, pk),
      });
    }
  }

  /** Commit what `propose` makes of a record, and try again after a conflict. */
  async #write(
    pk: Key,
    readsFirst: boolean,
    propose: Proposal,
    removes = false,
  ): Promise<ModelEntry<T> | undefined> {
    const attempts = new Attempts(this.#session.retry);
    const token = new Token<Document | null>();
    const recordKey: Key = [this.name, ...pk];
    requireWritable(this.#session.catalogue, this.#catalogue, removes);
    let seen: StoreEntry[] = readsFirst ? await this.#session.read([recordKey]) : [];
    while (true) {
      requireWritable(this.#session.catalogue, this.#catalogue, removes);
      const [row, ...slots] = seen;
      const old = this.#storedRecord(pk, row);
      const proposed = propose(old);
      if (proposed === undefined) return undefined;
      const { plan, document } = this.#about(pk, () => this.#planned(pk, old, proposed, slots));
      token.attach(plan.atomic, document);
      const result = await plan.atomic.commit();
      if (result.ok) return this.#entry(document, result.versionstamp);
      const mayRetry = await attempts.next();
      const [tokenRow, ...found] = await this.#session.read([token.key, recordKey, ...plan.claimed]);
      const applied = token.applied(tokenRow!);
      if (applied !== undefined) return this.#entry(applied.result, applied.versionstamp);
      if (!mayRetry) throw attempts.exhausted();
      seen = found;
    }
  }

  #planned(pk: Key, old: StoredRecord | null, proposed: Document | null, slots: readonly StoreEntry[]) {
    const { catalogue, kv } = this.#session;
    const known = old?.document ?? {};
    const document = proposed && storedDocument(this.#catalogue, proposed, known, this.#optionalFields());
    const plan: Plan = planWrite(kv, catalogue, this.#catalogue, {
      pk,
      old: old?.document ?? null,
      versionstamp: old?.versionstamp ?? null,
      document,
      slots: new Map(slots.map((slot) => [packKey(slot.key as Key), slot])),
    });
    return { plan, document };
  }

  #storedRecord(pk: Key, row: StoreEntry | undefined): StoredRecord | null {
    if (row === undefined || row.versionstamp === null) return null;
    const document = row.value as Document;
    const about = { collection: this.name, key: shownKey(this.#catalogue, pk) };
    if (typeof document !== "object" || document === null || !isNamed(this.#catalogue, document, pk)) {
      const hint = "Run db.check() in Python.";
      throw new ModelsError("damaged_record", "the row is not a record with this primary key", hint, about);
    }
    if (versionOf(document) !== this.#catalogue.schemaVersion) {
      const hint = "Run db.migrate() in Python.";
      throw new ModelsError("not_migrated", "the record has an older schema version", hint, about);
    }
    return { document, versionstamp: row.versionstamp };
  }

  #about<R>(pk: Key, make: () => R): R {
    try {
      return make();
    } catch (error) {
      if (!(error instanceof ModelsError)) throw error;
      throw error.about({ collection: this.name, key: shownKey(this.#catalogue, pk) });
    }
  }

  #entry(document: Document | null, versionstamp: string): ModelEntry<T> | undefined {
    if (document === null) return undefined;
    const key = this.#catalogue.primaryKey.map((column) => document[column.name]);
    return { key, value: withoutOwn(document) as T, versionstamp };
  }
}
