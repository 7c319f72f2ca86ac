/**
 * Reads and writes records of [kvmodels](https://pypi.org/project/kvmodels/), a Python library, from Deno KV.
 *
 * A Python service declares models; this module reads their catalogue from the store, finds records by primary key
 * and by index, and writes records with all their index entries in one atomic operation.
 *
 * @example
 * ```ts
 * import { openModels } from "@kvmodels/kvmodels";
 *
 * interface User {
 *   id: number;
 *   email: string;
 *   plan: string;
 * }
 *
 * const kv = await Deno.openKv("http://localhost:4512");
 * const models = await openModels(kv);
 * const users = models.collection<User>("users");
 * await users.insert({ id: 1, email: "ada@example.org", plan: "pro" });
 * const ada = await users.getBy("email", "ada@example.org");
 * for await (const { value } of users.list({ index: "plan", prefix: ["pro"] })) console.log(value.email);
 * ```
 *
 * @module
 */
import { Collection, type CollectionOptions } from "./src/collection.ts";
import type { Document } from "./src/documents.ts";
import type { RetryPolicy } from "./src/retries.ts";
import { Session } from "./src/session.ts";
import type { KvStore } from "./src/store.ts";

export { Collection } from "./src/collection.ts";
export type { Changes, CollectionOptions, WriteOptions } from "./src/collection.ts";
export type { Document } from "./src/documents.ts";
export { type ErrorCode, type ErrorDetails, ModelsError } from "./src/errors.ts";
export { type ModelEntry, ModelIterator, type ModelListOptions, type ModelSelector } from "./src/listing.ts";
export type { RetryPolicy } from "./src/retries.ts";
export type * from "./src/store.ts";

/** The models of an opened store. */
export class Models {
  readonly #session: Session;

  /** Models are opened by `openModels`. */
  constructor(session: Session) {
    this.#session = session;
  }

  /** The names of the collections. */
  get names(): string[] {
    return [...this.#session.catalogue.collections.keys()];
  }

  /** A collection; `T` is the type of its records. Throws `unknown_collection`. */
  collection<T extends object = Document>(name: string, options: CollectionOptions = {}): Collection<T> {
    return new Collection<T>(this.#session, name, options);
  }

  /** Read the catalogue again. Every write does so by itself if the catalogue has changed. */
  async reload(): Promise<void> {
    await this.#session.reload();
  }
}

/**
 * The models of a store that a Python program has opened with `codec="v8"`.
 *
 * Throws a `ModelsError` with the code `no_catalogue`, `loading` or `newer_format`.
 */
export async function openModels(kv: KvStore, retry: RetryPolicy = {}): Promise<Models> {
  return new Models(await Session.open(kv, retry));
}
