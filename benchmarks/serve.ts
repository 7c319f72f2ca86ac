// Sequential calls of one Deno program: prints the milliseconds of all gets, and of all sets. Arguments: URL, number.
const [url, calls] = Deno.args;
const kv = await Deno.openKv(url);
const keys = Array.from({ length: Number(calls) }, (_, at) => ["benchmark", at % 100]);
const user = { name: "Ada", email: "ada@example.org", tags: ["a", "b"], age: 36 };

async function milliseconds(call: (key: Deno.KvKey) => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  for (const key of keys) await call(key);
  return performance.now() - begun;
}

const sets = await milliseconds((key) => kv.set(key, user));
const gets = await milliseconds((key) => kv.get(key));
if ((await kv.get<typeof user>(keys[0])).value?.email !== user.email) throw new Error("a get found another value");
console.log(JSON.stringify([gets, sets]));
kv.close();
