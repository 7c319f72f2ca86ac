// One opened store: the client, the catalogue as it was read last, and reads that notice a newer one.
import { type Catalogue, type CollectionCatalogue, HEADER_KEY, readCatalogue } from "./catalogue.ts";
import { ModelsError } from "./errors.ts";
import type { RetryPolicy } from "./retries.ts";
import type { Key, KvStore, StoreEntry } from "./store.ts";

/** Keys of one `getMany` of Deno KV. */
const KEYS_AT_ONCE = 10;

/** The state that all collections of an opened store share. */
export class Session {
  readonly kv: KvStore;
  readonly retry: RetryPolicy;
  #catalogue: Catalogue;

  private constructor(kv: KvStore, retry: RetryPolicy, catalogue: Catalogue) {
    this.kv = kv;
    this.retry = retry;
    this.#catalogue = catalogue;
  }

  /** Read the catalogue of a store. Throws as `readCatalogue`. */
  static async open(kv: KvStore, retry: RetryPolicy): Promise<Session> {
    const [header] = await kv.getMany([HEADER_KEY]);
    return new Session(kv, retry, readCatalogue(header!));
  }

  get catalogue(): Catalogue {
    return this.#catalogue;
  }

  /** A collection of the catalogue. Throws `unknown_collection`. */
  collection(name: string): CollectionCatalogue {
    const found = this.#catalogue.collections.get(name);
    if (found !== undefined) return found;
    const names = [...this.#catalogue.collections.keys()].join(", ") || "none";
    throw new ModelsError("unknown_collection", "there is no such collection", `The store has: ${names}.`, {
      collection: name,
    });
  }

  /** Read the catalogue again. */
  async reload(): Promise<void> {
    await this.read([]);
  }

  /**
   * The entries of some keys, in batches that are each one snapshot with the header.
   *
   * If the header has changed, the newer catalogue is used from then on, and an index that was dropped before the
   * snapshot is noticed.
   */
  async read(keys: readonly Key[]): Promise<StoreEntry[]> {
    const batches: Promise<StoreEntry[]>[] = [];
    for (let at = 0; at === 0 || at < keys.length; at += KEYS_AT_ONCE - 1) {
      batches.push(this.kv.getMany([HEADER_KEY, ...keys.slice(at, at + KEYS_AT_ONCE - 1)]));
    }
    const found: StoreEntry[] = [];
    for (const [header, ...entries] of await Promise.all(batches)) {
      if (header!.versionstamp !== this.#catalogue.versionstamp) {
        const read = readCatalogue(header!);
        if (read.versionstamp > this.#catalogue.versionstamp) this.#catalogue = read;
      }
      found.push(...entries);
    }
    return found;
  }
}
