// Prints the packed key parts of values, or null where a value is refused, and the folded forms of letters.
// Usage: deno run -A pack_columns.ts INPUT; the input is JSON: values with the types of their columns, and letters.
import { columnPart } from "../../deno/src/columns.ts";
import { ModelsError } from "../../deno/src/errors.ts";
import { packPart } from "../../deno/src/keys.ts";
import { casefold } from "../../deno/src/texts.ts";

function packed(type: string, value: unknown, descending: boolean): string | null {
  const column = { name: "x", type, descending, nullable: true, many: false, path: ["x"] };
  try {
    const part = packPart(columnPart(column, value));
    return [...part].map((byte) => byte.charCodeAt(0).toString(16).padStart(2, "0")).join("");
  } catch (error) {
    if (error instanceof ModelsError) return null;
    throw error;
  }
}

const { values, letters } = JSON.parse(await Deno.readTextFile(Deno.args[0]!));
const parts = values.map(([type, value, descending]: [string, unknown, boolean]) => {
  const integer = typeof value === "string" && (type === "int" || type === "timedelta");
  return packed(type, integer ? BigInt(value) : value, descending);
});
const folded = letters.map((letter: string) => casefold(letter) ?? null);
console.log(JSON.stringify({ parts, folded }));
