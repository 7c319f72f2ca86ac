// Over TLS: writes and reads, then 30 more requests of the same connection. Argument: the URL.
const kv = await Deno.openKv(Deno.args[0]);
await kv.set(["tls"], new Map([[1n, "a"]]));
for (let at = 0; at < 30; at++) await kv.get(["tls"]);
console.log(Deno.inspect((await kv.get(["tls"])).value));
kv.close();
