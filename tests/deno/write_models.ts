// Carries out writes of kvmodels.ts on a file of Deno KV, and lists the records by every index.
// Usage: deno run -A --unstable-kv write_models.ts FILE INPUT; the input is JSON: operations and lists.
import { type Document, ModelsError, openModels } from "../../deno/kvmodels.ts";

// deno-lint-ignore no-explicit-any
function revived(_: string, value: any): any {
  switch (value?.$) {
    case "bigint":
      return BigInt(value.of);
    case "number":
      return value.of === "inf" ? Infinity : value.of === "-inf" ? -Infinity : Number(value.of);
    case "bytes":
      return Uint8Array.from(value.of);
    case "set":
      return new Set(value.of);
    case "date":
      return new Date(value.of);
  }
  return value;
}

const input = JSON.parse(await Deno.readTextFile(Deno.args[1]!), revived);
const kv = await Deno.openKv(Deno.args[0]);
const models = await openModels(kv);
const members = models.collection<Document>("members");

async function attempt([kind, target, changes]: [string, Document, Document]): Promise<string> {
  try {
    if (kind === "insert") await members.insert(target);
    else if (kind === "replace") await members.replace(target);
    else if (kind === "patch") await members.patch(target, changes);
    else return await members.remove(target) ? "ok" : "absent";
  } catch (error) {
    if (error instanceof ModelsError) return error.code;
    throw error;
  }
  return "ok";
}

const results: string[] = [];
for (const operation of input.operations) results.push(await attempt(operation));
const lists: unknown[] = [];
for (const [selector, options] of input.lists) {
  lists.push((await members.list(selector, options).toArray()).map(({ key }) => key));
}
const found: unknown[] = [];
for (const [index, values] of input.lookups) found.push((await members.getBy(index, values))?.key ?? null);
const pages: unknown[] = [];
let cursor = "";
do {
  const page = members.list({ index: "tags" }, { limit: 3, cursor });
  pages.push((await page.toArray()).map(({ key }) => key));
  cursor = page.cursor;
} while (cursor);
console.log(JSON.stringify({ results, lists, found, pages }));
kv.close();
