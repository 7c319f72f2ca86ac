// Keys as bytes, in the encoding of Deno KV. Packed keys are strings with one character per byte: they can be
// compared with `<`, and they can be keys of a Map.
import type { Key, KeyPart } from "./store.ts";

const UTF8 = new TextEncoder();

/** Bytes as a packed string. */
export function packBytes(bytes: Uint8Array): string {
  let packed = "";
  for (const byte of bytes) packed += String.fromCharCode(byte);
  return packed;
}

/** The bytes of a packed string. */
export function unpackBytes(packed: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(packed, (character) => character.charCodeAt(0));
}

/** Every byte of a packed string inverted. */
export function complement(packed: string): string {
  return packBytes(unpackBytes(packed).map((byte) => 255 - byte));
}

/** The packed form of one key part. */
export function packPart(part: KeyPart): string {
  switch (typeof part) {
    case "string":
      return `\x02${escape(packBytes(UTF8.encode(part)))}\0`;
    case "bigint":
      return packBigint(part);
    case "number":
      return packNumber(part);
    case "boolean":
      return part ? "\x27" : "\x26";
  }
  return `\x01${escape(packBytes(part))}\0`;
}

/** The packed form of a key. */
export function packKey(key: Key): string {
  return key.map(packPart).join("");
}

/** Whether two keys have the same parts. */
export function isSameKey(one: Key, other: Key): boolean {
  return packKey(one) === packKey(other);
}

function escape(packed: string): string {
  return packed.replaceAll("\0", "\0\xff");
}

function packBigint(part: bigint): string {
  if (part === 0n) return "\x14";
  const magnitude = part < 0n ? -part : part;
  let digits = magnitude.toString(16);
  if (digits.length % 2) digits = `0${digits}`;
  const size = digits.length / 2;
  let bytes = "";
  for (let at = 0; at < digits.length; at += 2) {
    bytes += String.fromCharCode(parseInt(digits.slice(at, at + 2), 16));
  }
  if (part > 0n) {
    return (size <= 8 ? String.fromCharCode(0x14 + size) : `\x1d${String.fromCharCode(size)}`) + bytes;
  }
  return (size <= 8 ? String.fromCharCode(0x14 - size) : `\x0b${String.fromCharCode(size ^ 255)}`) +
    complement(bytes);
}

function packNumber(part: number): string {
  const bits = bitsOf(part);
  return `\x21${bits >> 63n ? complement(bigEndian(bits)) : bigEndian(bits ^ (1n << 63n))}`;
}

function bitsOf(part: number): bigint {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, part);
  return view.getBigUint64(0);
}

function bigEndian(bits: bigint): string {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, bits);
  return packBytes(new Uint8Array(view.buffer));
}

/** The first key after a key and every longer key that begins with it; undefined after `true`, the last part. */
export function keyAfter(key: Key): Key | undefined {
  const last = key.at(-1);
  const following = last === undefined ? undefined : partAfter(last);
  return following === undefined ? undefined : [...key.slice(0, -1), following];
}

function partAfter(part: KeyPart): KeyPart | undefined {
  switch (typeof part) {
    case "string":
      return `${part}\0`;
    case "bigint":
      return part + 1n;
    case "number":
      return nextNumber(part);
    case "boolean":
      return part ? undefined : true;
  }
  return Uint8Array.from([...part, 0]);
}

function nextNumber(part: number): number {
  if (part === Infinity) return NaN; // which is the next one among keys
  if (Object.is(part, -0)) return 0;
  const view = new DataView(new ArrayBuffer(8));
  const bits = bitsOf(part);
  view.setBigUint64(0, bits >> 63n ? bits - 1n : bits + 1n);
  return view.getFloat64(0);
}

/** The first text after every text with a prefix, in the order of keys; undefined if there is none. */
export function textAfter(prefix: string): string | undefined {
  const points = [...prefix];
  while (points.length) {
    const point = points.pop()!.codePointAt(0)!;
    if (point < 0x10ffff) {
      return points.join("") + String.fromCodePoint(point === 0xd7ff ? 0xe000 : point + 1);
    }
  }
  return undefined;
}
