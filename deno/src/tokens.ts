// The token of one write: a row that its commit sets and that must be absent before, so that it is applied once.
import type { Key, StoreAtomic, StoreEntry } from "./store.ts";

/** How long a token is kept, as in Python. */
const LIFETIME = 900_000;

/**
 * The token of one write over all its attempts.
 *
 * If the answer to a commit is lost, Deno sends the commit again. The second one fails, as after a conflict; the token
 * tells that the first one was applied, and by which attempt.
 */
export class Token<T> {
  /** The key of its row. */
  readonly key: Key = ["__kvmodels__", "token", crypto.randomUUID()];
  readonly #attempts: T[] = [];

  /** Make an operation apply at most once; `result` is what the attempt returns. */
  attach(atomic: StoreAtomic, result: T): void {
    const number = this.#attempts.push(result);
    atomic.check({ key: this.key, versionstamp: null }).set(this.key, BigInt(number), { expireIn: LIFETIME });
  }

  /** The result of the attempt that was applied, and the versionstamp of its commit; undefined if none was. */
  applied(row: StoreEntry): { result: T; versionstamp: string } | undefined {
    if (row.versionstamp === null) return undefined;
    return { result: this.#attempts[Number(row.value) - 1]!, versionstamp: row.versionstamp };
  }
}
