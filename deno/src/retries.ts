// The bounds of retries after a conflict: exponential waiting with full jitter, as in Python.
import { ModelsError } from "./errors.ts";

/** How often and how long a write is tried again after a conflict. */
export interface RetryPolicy {
  /** The most attempts; 50 by default. */
  attempts?: number;
  /** The time in milliseconds after which no attempt begins; 10,000 by default. */
  deadline?: number;
}

const FIRST_WAIT = 1;
const LONGEST_WAIT = 250;

/** Counts the attempts of one call. */
export class Attempts {
  readonly #attempts: number;
  readonly #end: number;
  #made = 0;

  constructor({ attempts = 50, deadline = 10_000 }: RetryPolicy) {
    this.#attempts = attempts;
    this.#end = performance.now() + deadline;
  }

  /** Wait before the next attempt; false, without waiting, if there shall be none. */
  async next(): Promise<boolean> {
    this.#made += 1;
    const wait = Math.random() * Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** Math.min(this.#made, 10));
    if (this.#made >= this.#attempts || performance.now() + wait > this.#end) return false;
    await new Promise((resolve) => setTimeout(resolve, wait));
    return true;
  }

  /** The error for a call without a further attempt. */
  exhausted(): ModelsError {
    const hint = "Others write the same records: try again later, or raise `attempts` and `deadline`.";
    return new ModelsError("retries_exhausted", `no attempt of ${this.#made} was free of conflicts`, hint);
  }
}
