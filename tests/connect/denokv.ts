// Serves the backend of Deno's own servers by KV Connect: denokv_sqlite, the native module of @deno/kv-linux-x64-gnu.
// Arguments: the native module, the access token. The first line of the output is the port. Every path is a database
// in memory, which begins with its first request and ends with DELETE.
import { createRequire } from "node:module";

interface Backend {
  open(path: string, inMemory: undefined, debug: boolean): Promise<number>;
  close(database: number, debug: boolean): void;
  snapshotRead(database: number, request: Uint8Array, debug: boolean): Promise<Uint8Array>;
  atomicWrite(database: number, request: Uint8Array, debug: boolean): Promise<Uint8Array>;
  startWatch(database: number, request: Uint8Array, debug: boolean): number;
  dequeueNextWatchMessage(database: number, watch: number, debug: boolean): Promise<Uint8Array | undefined>;
  endWatch(database: number, watch: number, debug: boolean): void;
}

interface Database {
  id: string;
  handle: Promise<number>;
}

const PING_INTERVAL_MS = 5_000;
const [path, accessToken] = Deno.args;
const backend = createRequire(import.meta.url)(path) as Backend;
const dataToken = crypto.randomUUID();
const databases = new Map<string, Database>();

function databaseAt(name: string): Database {
  const found = databases.get(name) ??
    { id: crypto.randomUUID(), handle: backend.open(":memory:", undefined, false) };
  databases.set(name, found);
  return found;
}

function metadata(name: string): Response {
  return Response.json({
    version: 3,
    databaseId: databaseAt(name).id,
    endpoints: [{ url: `/${name}/v2`, consistency: "strong" }],
    token: dataToken,
    expiresAt: new Date(Date.now() + 3_600_000).toISOString(),
  });
}

function watch(database: number, request: Uint8Array): Response {
  const id = backend.startWatch(database, request, false);
  let pings: ReturnType<typeof setInterval> | undefined;
  const frames = new ReadableStream<Uint8Array>({
    start(controller) {
      pings = setInterval(() => {
        try {
          controller.enqueue(new Uint8Array(4));
        } catch {
          clearInterval(pings); // the stream has ended with its database
        }
      }, PING_INTERVAL_MS);
    },
    async pull(controller) {
      const message = await backend.dequeueNextWatchMessage(database, id, false);
      if (message === undefined) {
        clearInterval(pings);
        return controller.close();
      }
      const frame = new Uint8Array(4 + message.length);
      new DataView(frame.buffer).setUint32(0, message.length, true);
      frame.set(message, 4);
      controller.enqueue(frame);
    },
    cancel() {
      clearInterval(pings);
      backend.endWatch(database, id, false);
    },
  });
  return new Response(frames, { headers: { "content-type": "application/octet-stream" } });
}

async function call(method: string, database: number, body: Uint8Array): Promise<Response> {
  try {
    if (method === "watch") return watch(database, body);
    const made = method === "atomic_write"
      ? await backend.atomicWrite(database, body, false)
      : await backend.snapshotRead(database, body, false);
    return new Response(new Uint8Array(made), { headers: { "content-type": "application/x-protobuf" } });
  } catch (error) {
    return new Response((error as Error).message.split("\n")[0], { status: 400 });
  }
}

async function answer(request: Request): Promise<Response> {
  const [, name, version, method] = new URL(request.url).pathname.split("/");
  const body = new Uint8Array(await request.arrayBuffer());
  if (request.method === "DELETE") {
    const database = databases.get(name);
    databases.delete(name);
    if (database !== undefined) backend.close(await database.handle, false);
    return new Response();
  }
  if (request.headers.get("authorization") !== `Bearer ${version === "v2" ? dataToken : accessToken}`) {
    return new Response("Invalid access token.", { status: 401 });
  }
  return version === "v2" ? call(method, await databaseAt(name).handle, body) : metadata(name);
}

Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: ({ port }) => console.log(port) }, answer);
