// Inserts a record at each line of its input, and prints how that ended: the schema changes in between.
// Usage: deno run -A --unstable-kv follow.ts URL
import { ModelsError, openModels } from "../../deno/kvmodels.ts";

const kv = await Deno.openKv(Deno.args[0]);
const accounts = (await openModels(kv)).collection("accounts");
let id = 0;
console.log("open");
for await (const _ of Deno.stdin.readable) {
  id += 1;
  try {
    await accounts.insert({ id, email: `${id}@example.org`, hits: id, owner: "deno" });
    console.log((await accounts.list({ index: "owner" }).toArray()).length);
  } catch (error) {
    if (!(error instanceof ModelsError)) throw error;
    console.log(error.code);
  }
}
kv.close();
