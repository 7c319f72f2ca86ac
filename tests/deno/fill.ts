// Fills a file of Deno KV as a program would: entries of several commits, deadlines, a counter, a delayed message.
// Usage: deno run -A --unstable-kv fill.ts FILE
const kv = await Deno.openKv(Deno.args[0]);
await kv.set(["z", "first"], { name: "Ada", tags: new Set(["admin"]), at: new Date(5) });
await kv.atomic().set(["b"], [1, 2n, NaN, undefined]).set(["a"], new Uint8Array([0, 255])).commit();
await kv.atomic().sum(["hits"], 7n).commit();
await kv.set(["soon"], "gone", { expireIn: 3_600_000 });
await kv.set([new Uint8Array([0, 1]), 1n, 1.5, true, "é\0"], null);
await kv.enqueue({ to: "ada" }, { delay: 3_600_000, backoffSchedule: [10, 20], keysIfUndelivered: [["failed", 1]] });
for (let n = 0; n < 600; n++) await kv.set(["many", n], "x".repeat(2_000));
await kv.set(["authors", 1n], { id: 1, email: "ada@example.com", books: 3 });
await kv.set(["a"], "last");
kv.close();
