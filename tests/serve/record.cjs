// Carries out requests of KV Connect on the backend of Deno's own server: lines of "method hex" become lines of JSON.
// Argument: the native module of the npm package @deno/kv-linux-x64-gnu.
const backend = require(require("node:path").resolve(process.argv[2]));

(async () => {
  const database = await backend.open(":memory:", undefined, false);
  for await (const line of require("node:readline").createInterface({ input: process.stdin })) {
    const [method, hex] = line.split(" ");
    let answer;
    try {
      const made = await backend[method](database, Buffer.from(hex, "hex"), false);
      answer = { body: Buffer.from(made).toString("hex") };
    } catch (error) {
      answer = { error: error.message.split("\n")[0] };
    }
    console.log(JSON.stringify(answer));
  }
  backend.close(database, false);
})();
