// Imports lines of @deno/kv-utils into a Deno KV file, and prints everything that the file then holds as such lines.
// Written after the documentation of the format, because a test must not fetch the package.
// Usage: deno run -A --unstable-kv exchange.ts FILE LINES
type Form = { type: string; value?: any };

const base64 = (bytes: Uint8Array) => (bytes as any).toBase64({ alphabet: "base64url", omitPadding: true });
const bytesOf = (text: string): Uint8Array => (Uint8Array as any).fromBase64(text, { alphabet: "base64url" });
const errors: Record<string, ErrorConstructor> = { Error, TypeError, RangeError } as any;
const arrays = { Int8Array, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array,
  BigInt64Array, BigUint64Array, Uint8ClampedArray } as Record<string, any>;

function toForm(value: any): Form {
  switch (typeof value) {
    case "undefined":
      return { type: "undefined" };
    case "bigint":
      return { type: "bigint", value: String(value) };
    case "number":
      return { type: "number", value: Number.isFinite(value) ? value : String(value) };
    case "string":
    case "boolean":
      return { type: typeof value, value };
  }
  if (value === null) return { type: "null", value };
  if (Array.isArray(value)) return { type: "Array", value: value.map(toForm) };
  if (value instanceof Uint8Array) return { type: "Uint8Array", value: base64(value) };
  if (ArrayBuffer.isView(value)) {
    return { type: value.constructor.name, value: base64(new Uint8Array(value.buffer)) };
  }
  if (value instanceof Date) return { type: "Date", value: value.toJSON() };
  if (value instanceof Deno.KvU64) return { type: "KvU64", value: String(value) };
  if (value instanceof Error) {
    const form: any = { message: value.message };
    if (value.cause) form.cause = toForm(value.cause);
    if (value.stack) form.stack = value.stack;
    return { type: value.constructor.name, value: form };
  }
  if (value instanceof Map) return { type: "Map", value: [...value].map(([key, item]) => [toForm(key), toForm(item)]) };
  if (value instanceof RegExp) return { type: "RegExp", value: String(value) };
  if (value instanceof Set) return { type: "Set", value: [...value].map(toForm) };
  return { type: "object", value: Object.fromEntries(Object.entries(value).map(([name, item]) => [name, toForm(item)])) };
}

function toValue({ type, value }: Form): any {
  switch (type) {
    case "undefined":
      return undefined;
    case "bigint":
      return BigInt(value);
    case "number":
      return typeof value === "string" ? Number(value) : value;
    case "Array":
      return value.map(toValue);
    case "Uint8Array":
      return bytesOf(value);
    case "Date":
      return new Date(value);
    case "KvU64":
      return new Deno.KvU64(BigInt(value));
    case "Map":
      return new Map(value.map(([key, item]: [Form, Form]) => [toValue(key), toValue(item)]));
    case "Set":
      return new Set(value.map(toValue));
    case "RegExp": {
      const parts = value.split("/");
      const flags = parts.pop();
      return new RegExp(parts.slice(1).join("/"), flags);
    }
    case "object":
      return Object.fromEntries(Object.entries(value as Record<string, Form>).map(([name, item]) => [name, toValue(item)]));
  }
  if (type in errors) return new errors[type](value.message);
  if (type in arrays) return new arrays[type](bytesOf(value).buffer);
  return value;
}

const kv = await Deno.openKv(Deno.args[0]);
for (const line of (await Deno.readTextFile(Deno.args[1])).split("\n")) {
  if (!line) continue;
  const { key, value } = JSON.parse(line);
  await kv.set(key.map(toValue), toValue(value));
}
await kv.set(["deno", "error"], new TypeError("wrong", { cause: new Date(5) }));
await kv.set(["deno", "pattern"], /a\/[b/]\n/gi);
await kv.set(["deno", "clamped"], new Uint8ClampedArray([1, 255]));
await kv.set(["deno", "numbers"], [1, 1n, -1.5, NaN, -Infinity, 2 ** 60]);
for await (const { key, value, versionstamp } of kv.list({ prefix: [] })) {
  console.log(JSON.stringify({ key: key.map(toForm), value: toForm(value), versionstamp }));
}
kv.close();
