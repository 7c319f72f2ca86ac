/** What went wrong, for programs; the README lists the codes. */
export type ErrorCode =
  | "already_exists"
  | "building"
  | "damaged_record"
  | "has_references"
  | "index_not_readable"
  | "invalid_argument"
  | "invalid_value"
  | "loading"
  | "missing_field"
  | "newer_format"
  | "no_catalogue"
  | "not_found"
  | "not_migrated"
  | "referenced"
  | "retries_exhausted"
  | "schema_changed"
  | "stale_record"
  | "too_many_entries"
  | "unique_violation"
  | "unknown_collection"
  | "unknown_field"
  | "unknown_index"
  | "unsupported_index";

/** Names of what an error is about. */
export interface ErrorDetails {
  /** The collection. */
  readonly collection?: string;
  /** The index. */
  readonly index?: string;
  /** The field. */
  readonly field?: string;
  /** The primary key of the record that the call was about. */
  readonly key?: readonly unknown[];
  /** With `unique_violation`: the primary key of the record that has the value. */
  readonly existingKey?: readonly unknown[];
}

/** The only error of this module: a stable `code`, a message, and a `hint` what to do next. */
export class ModelsError extends Error {
  /** What went wrong, for programs. */
  readonly code: ErrorCode;
  /** What to do next. */
  readonly hint: string;
  /** Names of what the error is about. */
  readonly details: ErrorDetails;
  readonly #problem: string;

  /** Errors are made by this module. */
  constructor(code: ErrorCode, problem: string, hint: string, details: ErrorDetails = {}) {
    const { collection, index, field } = details;
    const names = [collection, index && `index ${index}`, field && `field ${field}`].filter(Boolean);
    super(`${names.length ? `${names.join(", ")}: ` : ""}${problem}. ${hint}`);
    this.name = "ModelsError";
    this.code = code;
    this.hint = hint;
    this.details = details;
    this.#problem = problem;
  }

  /** The same error with more names; they do not replace those that it has. */
  about(details: ErrorDetails): ModelsError {
    return new ModelsError(this.code, this.#problem, this.hint, { ...details, ...this.details });
  }
}
