// Every operation of Deno's API on a local Deno KV and on served stores: both must answer alike.
// Arguments: the URLs of the served stores. Prints a JSON line for each difference, and one with the number of steps.

type Step = (kv: Deno.Kv) => Promise<unknown>;
const steps: [string, Step][] = [];
const step = (name: string, run: Step) => steps.push([name, run]);

async function collect(list: Deno.KvListIterator<unknown>) {
  const found: unknown[] = [];
  for await (const entry of list) found.push([entry.key, entry.value, list.cursor]);
  return [found, list.cursor];
}

const values: unknown[] = [
  null, undefined, true, false, 0, -0, 1.5, NaN, -Infinity, 2 ** 31, 0n, -5n, 2n ** 200n, "", "text", "é日😀",
  new Uint8Array([0, 255]), new Uint8Array(0), new Deno.KvU64(2n ** 64n - 1n), new Date(5), new Date(NaN), /a\/b/giu,
  [1, [2], { a: null }], [, 1], { nested: { list: [1n] } }, new Map<unknown, unknown>([[1, "a"], ["b", new Set([1])]]),
  new Float64Array([1.5]), new ArrayBuffer(3), new Error("wrong"), Object(1), Object("boxed"), "x".repeat(60_000),
];
values.forEach((value, at) =>
  step(`value ${at}`, async (kv) => [await kv.set(["values", at], value), await kv.get(["values", at])])
);
const keys: Deno.KvKey[] = [
  [""], ["a", "\0b"], ["a\0"], [new Uint8Array([0, 1])], [1], [-0], [0], [NaN], [-Infinity], [1n], [-(2n ** 70n)],
  [true], [false], ["a", 1, 1n, true], ["日", new Uint8Array()],
];
keys.forEach((key, at) => step(`key ${at}`, async (kv) => [await kv.set(key, at), await kv.get(key)]));
step("types of keys in order", (kv) => collect(kv.list({ start: [new Uint8Array()], end: ["values"] })));
step("absent", (kv) => kv.get(["absent"]));
step("getMany", (kv) => kv.getMany([["values", 3], ["absent"], ["values", 3], [1]]));
step("getMany of 10", (kv) => kv.getMany(Array.from({ length: 10 }, (_, at) => ["values", at])));
step("getMany of 11", (kv) => kv.getMany(Array.from({ length: 11 }, (_, at) => ["values", at]) as [Deno.KvKey]));

step("fill", async (kv) => {
  for (let at = 0; at < 300; at += 100) {
    const atomic = kv.atomic();
    for (let n = at; n < at + 100; n++) atomic.set(["list", n % 7, n], n);
    await atomic.commit();
  }
});
for (const reverse of [false, true]) {
  for (const batchSize of [undefined, 1, 7, 1000]) {
    if (batchSize === 1) continue;
    step(`list ${reverse} ${batchSize}`, (kv) => collect(kv.list({ prefix: ["list"] }, { reverse, batchSize })));
  }
  step(`limit ${reverse}`, (kv) => collect(kv.list({ prefix: ["list"] }, { reverse, limit: 5, batchSize: 2 })));
  step(`start ${reverse}`, (kv) => collect(kv.list({ prefix: ["list"], start: ["list", 3] }, { reverse })));
  step(`end ${reverse}`, (kv) => collect(kv.list({ prefix: ["list"], end: ["list", 3, 50] }, { reverse })));
  step(`range ${reverse}`, (kv) => collect(kv.list({ start: ["list", 1], end: ["list", 2] }, { reverse })));
  step(`empty ${reverse}`, (kv) => collect(kv.list({ start: ["list", 1], end: ["list", 1] }, { reverse })));
  step(`pages ${reverse}`, async (kv) => {
    const found = [];
    for (let cursor: string | undefined = undefined; cursor !== "";) {
      const list: Deno.KvListIterator<unknown> = kv.list({ prefix: ["list", 2] }, { reverse, limit: 13, cursor });
      found.push(await collect(list));
      cursor = list.cursor;
    }
    return found;
  });
}
step("batch of 1001", (kv) => collect(kv.list({ prefix: ["list"] }, { batchSize: 1001 })));
step("eventual", (kv) => kv.get(["values", 3], { consistency: "eventual" }));

step("delete", async (kv) => [await kv.delete(["values", 3]), await kv.delete(["values", 3]), await kv.get(["values", 3])]);
step("check absent", (kv) => kv.atomic().check({ key: ["c"], versionstamp: null }).set(["c"], 1).commit());
step("check fails", (kv) => kv.atomic().check({ key: ["c"], versionstamp: null }).set(["c"], 2).commit());
step("check holds", async (kv) => kv.atomic().check(await kv.get(["c"])).set(["c"], 3).delete(["c2"]).commit());
step("checked", (kv) => kv.get(["c"]));
step("nothing to commit", (kv) => kv.atomic().commit());
step("in order", async (kv) => [
  await kv.atomic().set(["o"], 1).delete(["o"]).set(["p"], 1).set(["p"], 2).delete(["q"]).set(["q"], 3).commit(),
  await kv.getMany([["o"], ["p"], ["q"]]),
]);
for (const kind of ["sum", "min", "max"] as const) {
  step(`${kind} of nothing`, (kv) => kv.atomic()[kind]([kind], 5n).commit());
  step(`${kind} below`, (kv) => kv.atomic()[kind]([kind], 3n).commit());
  step(`${kind} above`, (kv) => kv.atomic()[kind]([kind], 2n ** 64n - 1n).commit());
  step(`${kind} found`, (kv) => kv.get([kind]));
  step(`${kind} of text`, (kv) => kv.atomic()[kind](["c"], 1n).commit());
  for (const value of [1, -2n, 2n ** 64n, "text", new Uint8Array(8), Object(1), null]) {
    for (const target of ["n", "big", kind, "c", "none"]) {
      step(`${kind} ${target} ${Deno.inspect(value)}`, async (kv) => {
        await kv.atomic().set(["n"], 1.5).set(["big"], 7n).commit();
        const operation = kv.atomic().mutate({ type: kind, key: [target], value } as Deno.KvMutation);
        return [await operation.commit(), await kv.get([target])];
      });
    }
  }
}
step("versionstamped", async (kv) => {
  await kv.atomic().set(["log", kv.commitVersionstamp()], 1).commit();
  const [entry] = await Array.fromAsync(kv.list({ prefix: ["log"] }));
  return [entry.value, entry.key.length, entry.key[1] === entry.versionstamp];
});

const check = (at: number) => ({ key: ["absent", at], versionstamp: null });
for (const number of [100, 101]) {
  step(`${number} checks`, (kv) => {
    const atomic = kv.atomic().set(["checked"], number);
    for (let at = 0; at < number; at++) atomic.check(check(at));
    return atomic.commit();
  });
}
for (const number of [1000, 1001]) {
  step(`${number} mutations`, (kv) => {
    const atomic = kv.atomic();
    for (let at = 0; at < number; at++) atomic.set(["m", at], 1);
    return atomic.commit();
  });
}
for (const size of [65_536, 65_537]) {
  step(`value of ${size}`, (kv) => kv.set(["size"], new Uint8Array(size)));
}
const long = (size: number) => "k".repeat(size - 2);
for (const size of [2048, 2049]) {
  step(`key of ${size}`, async (kv) => [await kv.set([long(size)], 1), await kv.get([long(size)])]);
  step(`check of ${size}`, (kv) => kv.atomic().check({ key: [long(size)], versionstamp: null }).commit());
  step(`delete of ${size}`, (kv) => kv.delete([long(size)]));
  step(`prefix of ${size}`, (kv) => collect(kv.list({ prefix: [long(size)] })));
}
for (const more of [0, 1]) {
  // Twelve sets of 65,000 bytes with keys of 5 bytes that count twice; the last one fills the operation.
  step(`operation ${more}`, (kv) => {
    const atomic = kv.atomic();
    for (let at = 0; at < 12; at++) atomic.set(["t" + String.fromCharCode(97 + at)], new Uint8Array(65_000));
    return atomic.set(["tz"], new Uint8Array(819_200 - 12 * (65_000 + 8) - 8 + more)).commit();
  });
}
for (const more of [0, 1]) {
  // 163 keys of 500 bytes, and one that fills all keys of an operation.
  step(`keys ${more}`, (kv) => {
    const atomic = kv.atomic();
    for (let at = 0; at < 163; at++) atomic.set([long(490), at.toString().padStart(8, "0")], 1);
    return atomic.set([long(81_920 - 163 * 500 + more)], 1).commit();
  });
}
step("10 watched", async (kv) => {
  const reader = kv.watch(Array.from({ length: 10 }, (_, at) => ["values", at])).getReader();
  const first = (await reader.read()).value;
  await reader.cancel();
  return first;
});
step("watch", async (kv) => {
  const reader = kv.watch([["w", 1], ["w", 2]]).getReader();
  const found = [(await reader.read()).value];
  await kv.set(["w", 2], "first");
  found.push((await reader.read()).value);
  await kv.atomic().set(["w", 1], "second").delete(["w", 2]).commit();
  found.push((await reader.read()).value);
  await reader.cancel();
  return found;
});
step("11 watched", async (kv) => await kv.watch(Array.from({ length: 11 }, (_, at) => ["w", at])).getReader().read());
step("expires", async (kv) => [await kv.set(["e"], 1, { expireIn: 3_600_000 }), await kv.get(["e"])]);

function shown(value: unknown) {
  const text = Deno.inspect(value, { depth: 20, iterableLimit: 2_000, strAbbreviateSize: 100_000 });
  return text.replace(/versionstamp: "[0-9a-f]{20}"/g, 'versionstamp: "..."');
}

async function outcome(kv: Deno.Kv, run: Step) {
  try {
    return shown(await run(kv));
  } catch (error) {
    return (error as Error).message.replace(/^KV Connect failed to call '.*' \(status=\d+ [A-Za-z ]+\): /, "");
  }
}

const local = await Deno.openKv(":memory:");
const served = await Promise.all(Deno.args.map((url) => Deno.openKv(url)));
for (const [name, run] of steps) {
  const expected = await outcome(local, run);
  const found = await Promise.all(served.map((kv) => outcome(kv, run)));
  found.forEach((text, at) => {
    if (text !== expected) console.log(JSON.stringify([Deno.args[at].replace(/.*\//, ""), name, expected, text]));
  });
}
console.log(JSON.stringify(steps.length));
[local, ...served].forEach((kv) => kv.close());
