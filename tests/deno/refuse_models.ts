// Tries what kvmodels.ts refuses, on a file of Deno KV; prints a JSON object of the names of cases and their codes.
// Usage: deno run -A --unstable-kv refuse_models.ts FILE
import { type Document, type Models, ModelsError, openModels, type RetryPolicy } from "../../deno/kvmodels.ts";

const HEADER = ["__kvmodels__", "header"];
const kv = await Deno.openKv(Deno.args[0]);
// deno-lint-ignore no-explicit-any
const header: any = (await kv.get(HEADER)).value;
const codes: Record<string, string> = {};
const details: Record<string, unknown> = {};

async function tried(name: string, call: () => unknown): Promise<void> {
  try {
    await call();
    codes[name] = "ok";
  } catch (error) {
    if (!(error instanceof ModelsError)) throw error;
    if (!error.hint || !error.message.endsWith(error.hint)) throw new Error(`no hint: ${error.message}`);
    codes[name] = error.code;
    details[name] = error.details;
  }
}

/** Run a function on the models of another header, and put the former one back. */
async function under(change: (value: typeof header) => void, retry: RetryPolicy, run: (models: Models) => unknown) {
  const changed = structuredClone(header);
  change(changed);
  await kv.set(HEADER, changed);
  try {
    await run(await openModels(kv, retry));
  } finally {
    await kv.set(HEADER, header);
  }
}

const models = await openModels(kv);
for (const name of [
  "computed",
  "lowered",
  "counted",
  "covered",
  "opened",
  "ranked",
  "parted",
  "searched",
  "books",
  "contracts",
  "letters",
]) {
  const collection = models.collection(name);
  const before = JSON.stringify(await collection.list().toArray());
  await tried(`${name} insert`, () => collection.insert({ id: 9, name: "x", size: 1, author: 1 }));
  await tried(`${name} patch`, () => collection.patch(1, { size: 2 }));
  await tried(`${name} remove`, () => collection.remove(1));
  await tried(`${name} read`, () => collection.get(1));
  if (collection.readOnly?.code !== codes[`${name} insert`]) throw new Error(`readOnly of ${name}`);
  if (JSON.stringify(await collection.list().toArray()) !== before) throw new Error(`${name} has changed`);
}
const authors = models.collection("authors");
await tried("authors insert", () => authors.insert({ id: 2, name: "Bob" }));
await tried("authors patch", () => authors.patch(1, { name: "Ada L." }));
await tried("authors remove", () => authors.remove(1));

interface Plain {
  id: number;
  name: string;
  size: number;
  tags: string[];
  at: string | Date;
  note: unknown;
}
const plain = models.collection<Plain>("plain");
const good: Plain = { id: 1, name: "a", size: 1, tags: [], at: new Date(0), note: null };
const first = await plain.insert(good);
if (first.value.at !== "1970-01-01T00:00:00+00:00") throw new Error(`stored as ${first.value.at}`);
await tried("insert again", () => plain.insert(good));
await tried("same name", () => plain.insert({ ...good, id: 2 }));
const bad: Record<string, [string, unknown]> = {
  "text for a number": ["size", "1"],
  "fraction": ["size", 1.5],
  "null": ["size", null],
  "number for a text": ["name", 1],
  "lone surrogate": ["name", "\ud800"],
  "unfoldable": ["name", "Ωραία"],
  "no array": ["tags", "a"],
  "other elements": ["tags", [1]],
  "local time": ["at", "2026-01-01T00:00:00"],
  "invalid date": ["at", new Date(NaN)],
  "undefined inside": ["note", { a: [undefined] }],
  "function": ["note", () => 1],
  "surrogate inside": ["note", new Map([["\udc00", 1]])],
};
for (const [name, [field, value]] of Object.entries(bad)) {
  await tried(name, () => plain.insert({ ...good, id: 3, name: "b", [field]: value } as Plain));
}
const { note: _, ...short } = good;
await tried("missing field", () => plain.insert({ ...short, id: 4, name: "c" } as Plain));
const lenient = models.collection<Document>("plain", { optional: ["note", "name"] });
await tried("optional field", () => lenient.insert({ ...short, id: 4, name: "c" }));
await tried("optional but indexed", () => lenient.insert({ id: 5, size: 1, tags: [], at: new Date(0) }));
await tried("no primary key", () => lenient.insert({ name: "d" }));
await tried("unknown field", () => lenient.insert({ ...good, id: 5, name: "e", sise: 1 }));
await tried("own field", () => lenient.insert({ ...good, id: 5, name: "e", $kv: {} }));
await tried("too many values", () => plain.patch(1, { tags: Array.from({ length: 1001 }, (_, n) => `${n}`) }));
await tried("too many entries", () => plain.patch(1, { tags: Array.from({ length: 999 }, (_, n) => `${n}`) }));
await tried("many entries", () => plain.patch(1, { tags: Array.from({ length: 500 }, (_, n) => `${n}`) }));
const patched = await plain.patch(1, ({ size }) => ({ size: size + 1 }), { versionstamp: (await plain.get(1))!.versionstamp });
if (patched.value.size !== 2) throw new Error("not patched");
await tried("stale patch", () => plain.patch(1, { size: 3 }, { versionstamp: first.versionstamp }));
await tried("stale replace", () => plain.replace(good, { versionstamp: first.versionstamp }));
await tried("stale remove", () => plain.remove(1, { versionstamp: first.versionstamp }));
await tried("remove of nothing", () => plain.remove(77, { versionstamp: first.versionstamp }));
await tried("patch of nothing", () => plain.patch(77, { size: 1 }));
await tried("replace of nothing", () => plain.replace({ ...good, id: 77 }));
await tried("another key", () => plain.patch(1, { id: 2 }));
await tried("key of two parts", () => plain.get([1, 2]));
await tried("key of text", () => plain.get("1"));
await tried("no collection", () => models.collection("plane"));
await tried("no index", () => plain.list({ index: "nam" }).toArray());
await tried("no aggregate", () => models.collection("counted").list({ index: "size" }).toArray());
await tried("getBy of some index", () => plain.getBy("tags", "a"));
await tried("more values", () => plain.list({ prefix: [1, 2] }).toArray());
await tried("another prefix", () => plain.list({ prefix: [1], start: [2] }).toArray());
await tried("startsWith and end", () => plain.list({ index: "name", startsWith: "a", end: ["b"] }).toArray());
await tried("startsWith of numbers", () => plain.list({ startsWith: "a" }).toArray());
await tried("limit", () => plain.list({}, { limit: 0 }).toArray());

/** A client that gets no answer to its first commit, and sends each commit twice. */
const repeating = {
  getMany: kv.getMany.bind(kv),
  list: kv.list.bind(kv),
  atomic() {
    const operation = kv.atomic();
    const commit = operation.commit.bind(operation);
    operation.commit = async () => {
      await commit();
      return await commit();
    };
    return operation;
  },
};
const repeated = (await openModels(repeating)).collection<Plain>("plain");
const inserted = await repeated.insert({ ...good, id: 6, name: "twice" });
for (let round = 0; round < 5; round++) await repeated.patch(6, ({ size }) => ({ size: size + 1 }));
if ((await repeated.get(6))!.value.size !== 6 || inserted.value.size !== 1) throw new Error("applied twice");
if (!(await repeated.remove(6)) || await repeated.remove(6)) throw new Error("removed twice");

const states = ["write_only", "pending", "disabled"];
for (const state of states) {
  await under((value) => value.collections.plain.indexes[0].state = state, {}, async (opened) => {
    const some = opened.collection<Plain>("plain");
    await tried(`${state} write`, () => some.patch(1, { size: 5 }));
    await tried(`${state} list`, () => some.list({ index: "name" }).toArray());
    await tried(`${state} get`, () => some.get(1));
  });
}
await under((value) => value.collections.plain.indexes.push({ ...value.collections.plain.indexes[0], state: "dropping" }), {}, async (opened) => {
  await tried("beside a dropped index", () => opened.collection<Plain>("plain").patch(1, { size: 6 }));
});
await under((value) => value.collections.plain.indexes[0].signature.columns[0][1] = "money", {}, async (opened) => {
  await tried("unknown type", () => opened.collection<Plain>("plain").patch(1, { size: 5 }));
});
await under((value) => value.collections.plain.schema_version = 2n, {}, async (opened) => {
  await tried("older record", () => opened.collection<Plain>("plain").patch(1, { size: 5 }));
  await tried("removal of an older record", () => opened.collection<Plain>("plain").remove(1));
});
await under((value) => Object.assign(value.collections.plain, { schema_version: 2n, oldest: 1n, upgraded: { name: 2n } }), {}, async (opened) => {
  await tried("index of an upgraded field", () => opened.collection("plain").list({ index: "name" }).toArray());
  await tried("index of another field", () => opened.collection("plain").list({ index: "tags" }).toArray());
});
await tried("newer format", () => under((value) => value.format = 3n, {}, () => {}));
await tried("unknown section of the store", () => under((value) => value.keys = {}, {}, () => {}));
// deno-lint-ignore no-explicit-any
const strange: Record<string, (value: any, index: any) => void> = {
  "item": (_, index) => index.signature.kind = "geo",
  "item of the listing": (_, index) => index.options = {},
  "state": (_, index) => index.state = "paused",
  "on_delete": (_, index) => index.on_delete = "set_default",
  "columns": (_, index) => index.signature.columns = { cell: "at" },
  "column codec": (_, index) => index.signature.columns[0][1] = "money",
  "direction": (_, index) => index.signature.columns[0][2] = "nearest",
  "nullable": (_, index) => index.signature.columns[0][3] = "absent",
  "part of a column": (_, index) => index.signature.columns[0][4] = { path: ["name"], many: false, once: true },
  "place": (_, index) => index.signature.columns[0][4] = { path: ["$kv", "t", "name"], many: false },
  "unique": (_, index) => index.signature.unique = "per_group",
  "nulls": (_, index) => index.signature.nulls = "last",
  "store": (_, index) => index.signature.store = "compressed",
  "where": (_, index) => index.signature.where = [["not", ["size"]]],
  "include": (_, index) => index.signature.include = [{}],
  "sums": (_, index) => index.signature.sums = [["size", "float", "asc", false]],
  "places": (_, index) => index.signature.places = { size: 2n },
  "reference": (_, index) => index.signature.reference = ["authors", "people"],
  "section": (value) => value.collections.plain.history = {},
  "column type": (value) => value.collections.plain.columns.size = "sealed",
};
for (const [name, change] of Object.entries(strange)) {
  // deno-lint-ignore no-explicit-any
  const make = (value: any) => change(value, value.collections.plain.indexes.find((one: { name: string }) => one.name === "name"));
  await under(make, {}, async (opened) => {
    const some = opened.collection<Plain>("plain");
    await tried(`unknown ${name}, patch`, () => some.patch(1, { size: 5 }));
    await tried(`unknown ${name}, remove`, () => some.remove(1));
    await tried(`unknown ${name}, list`, () => some.list({ index: "name" }).toArray());
    await tried(`unknown ${name}, get`, () => some.get(1));
    await tried(`unknown ${name}, other index`, () => some.list({ index: "tags" }).toArray());
    if (some.readOnly?.code !== codes[`unknown ${name}, patch`]) throw new Error(`readOnly with unknown ${name}`);
    if (name === "reference") await tried("target of an unknown reference", () => opened.collection("authors").remove(2));
  });
}
await tried("load", () => under((value) => value.loading = "token", {}, () => {}));
await under(() => {}, { attempts: 1 }, async (opened) => {
  await kv.set(HEADER, header);
  await tried("one attempt", () => opened.collection<Plain>("plain").insert({ ...good, id: 7, name: "g" }));
});
await under(() => {}, {}, async (opened) => {
  const some = opened.collection<Plain>("plain");
  await kv.set(HEADER, header);
  await tried("changed header, insert", () => some.insert({ ...good, id: 8, name: "h" }));
  const changed = structuredClone(header);
  changed.collections.plain.indexes[0].state = "write_only";
  await kv.set(HEADER, changed);
  await tried("changed header, then a build", () => some.insert({ ...good, id: 9, name: "i" }));
});
await kv.set(["plain", 1n], { ...good, id: 5 });
await tried("another key in the record", () => plain.patch(1, { size: 5 }));
await kv.delete(HEADER);
await tried("no header", () => openModels(kv));
console.log(JSON.stringify({ codes, details }));
kv.close();
