// Describes the values of a Deno KV file, and stores each again under another prefix, as Deno itself writes it.
// Usage: deno run -A --unstable-kv describe.ts FILE
function describe(value: unknown, seen = new Map<object, number>()): unknown {
  if (value === undefined) return { t: "undefined" };
  if (value === null) return { t: "null" };
  switch (typeof value) {
    case "boolean":
      return { t: "bool", v: value };
    case "bigint":
      return { t: "bigint", v: value.toString() };
    case "string":
      return { t: "string", v: value };
    case "number":
      return { t: "number", v: Object.is(value, -0) ? "-0" : String(value) };
  }
  const object = value as object;
  if (seen.has(object)) return { t: "ref", id: seen.get(object) };
  seen.set(object, seen.size);
  const inner = (item: unknown) => describe(item, seen);
  const named = (names: string[]) => names.map((name) => [name, inner((object as Record<string, unknown>)[name])]);
  if (object instanceof Deno.KvU64) return { t: "u64", v: object.value.toString() };
  if (object instanceof Date) return { t: "date", ms: object.getTime() };
  if (object instanceof RegExp) return { t: "regexp", source: object.source, flags: object.flags };
  if (object instanceof Map) return { t: "map", v: [...object].map(([key, item]) => [inner(key), inner(item)]) };
  if (object instanceof Set) return { t: "set", v: [...object].map(inner) };
  if (object instanceof Uint8Array) return { t: "bytes", v: [...object], buffer: object.buffer.byteLength };
  if (ArrayBuffer.isView(object)) {
    return { t: object.constructor.name, v: [...object as unknown as number[]].map(String) };
  }
  if (Array.isArray(object)) {
    const names = Object.keys(object).filter((name) => !/^\d+$/.test(name));
    return { t: "array", v: object.map(inner), properties: named(names) };
  }
  return { t: "object", v: named(Object.keys(object)) };
}

const kv = await Deno.openKv(Deno.args[0]);
for await (const entry of kv.list({ prefix: ["written"] })) {
  console.log(JSON.stringify([entry.key[1], describe(entry.value)]));
  await kv.set(["again", ...entry.key.slice(1)], entry.value);
}
kv.close();
