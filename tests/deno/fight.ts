// One of several programs that write the same records of a shared store; prints the addresses that it has got.
// Usage: deno run -A --unstable-kv fight.ts URL NUMBER ROUNDS
import { ModelsError, openModels } from "../../deno/kvmodels.ts";

interface Account {
  id: number;
  email: string;
  hits: number;
  owner: string;
}

const [url, number, rounds] = Deno.args;
const kv = await Deno.openKv(url);
// The machine may be busy, and the test is about results.
const models = await openModels(kv, { attempts: 100_000, deadline: 120_000 });
const accounts = models.collection<Account>("accounts");
const won: string[] = [];
for (let round = 0; round < Number(rounds); round++) {
  const email = `Address${round}@example.org`;
  try {
    await accounts.insert({ id: 1000 * Number(number) + round + 1, email, hits: -1, owner: "deno" });
    won.push(email);
  } catch (error) {
    if (!(error instanceof ModelsError) || error.code !== "unique_violation") throw error;
  }
  await accounts.patch(0, ({ hits }) => ({ hits: hits + 1 }));
}
console.log(JSON.stringify(won));
kv.close();
