// Serves KV Connect over HTTP/1.1 from the backend of Deno's own server, for runs of these tests by hand.
// npm pack @deno/kv-linux-x64-gnu@0.14.0 && tar xf deno-kv-linux-x64-gnu-0.14.0.tgz
// node tests/connect/real_backend.cjs $PWD/package/deno-kv-napi.linux-x64-gnu.node [FILE]
// It prints its port: python -m tests.connect.writing_process http://127.0.0.1:PORT 0
const backend = require(process.argv[2]);
const http = require("node:http");
(async () => {
  const database = await backend.open(process.argv[3] || ":memory:", undefined, false);
  const server = http.createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", async () => {
      const body = Buffer.concat(parts);
      const say = (status, type, data) => { response.writeHead(status, {"content-type": type, "content-length": Buffer.byteLength(data)}); response.end(data); };
      if (request.url === "/") return say(200, "application/json", JSON.stringify({version: 3, databaseId: "6d2b1f0e-98a4-4c0a-8f2b-6b8f3c1f0a11", endpoints: [{url: "/v2", consistency: "strong"}], token: "data-token-of-the-tests", expiresAt: new Date(Date.now() + 3600e3).toISOString()}));
      try {
        const method = request.url.endsWith("snapshot_read") ? "snapshotRead" : "atomicWrite";
        say(200, "application/x-protobuf", Buffer.from(await backend[method](database, body, false)));
      } catch (error) { say(400, "text/plain", error.message.split("\n")[0]); }
    });
  });
  server.keepAliveTimeout = 60000;
  server.listen(0, "127.0.0.1", () => console.log(server.address().port));
})();
