// Deno KV, in memory and in a file: the functions of Deno's page on secondary indexes, each index row with a copy of
// the user, driven by the protocol of benchmarks/worker.py. An update is written in the same style: read, check, set
// every copy, repeat if somebody was faster. Four "threads" are four concurrent loops, as JavaScript has no other.
import { createHash } from "node:crypto";
import { createInterface } from "node:readline";

type User = { id: number; name: string; email: string; colour: string; age: number; bio: string };
// deno-lint-ignore no-explicit-any
type Arguments = any[];
type Workload = { users: Arguments[]; arguments: Record<string, Arguments[][]>; batch: number; page: number };

let kv: Deno.Kv;
let workload: Workload;

const made = ([id, name, email, colour, age, bio]: Arguments): User => ({ id, name, email, colour, age, bio });
const line = (user: User) => [user.id, user.name, user.email, user.colour, user.age, user.bio].join("\x1f");
const digest = (lines: string[]) => createHash("sha256").update(lines.join("\n")).digest("hex");
const rowsOf = (user: User): Deno.KvKey[] => [
  ["users", user.id],
  ["users_by_email", user.email],
  ["users_by_colour", user.colour, user.id],
];

async function insertUser(user: User): Promise<User> {
  const [primaryKey, byEmailKey, byColourKey] = rowsOf(user);
  const res = await kv.atomic()
    .check({ key: primaryKey, versionstamp: null })
    .check({ key: byEmailKey, versionstamp: null })
    .set(primaryKey, user)
    .set(byEmailKey, user)
    .set(byColourKey, user)
    .commit();
  if (!res.ok) throw new TypeError("User with ID or email already exists");
  return user;
}

// An atomic operation takes 100 checks, so a batch of users is several of them.
async function insertUsers(users: User[]): Promise<User[]> {
  const size = 50;
  for (let start = 0; start < users.length; start += size) {
    const operation = kv.atomic();
    for (const user of users.slice(start, start + size)) {
      const [primaryKey, byEmailKey, byColourKey] = rowsOf(user);
      operation.check({ key: primaryKey, versionstamp: null }).check({ key: byEmailKey, versionstamp: null });
      operation.set(primaryKey, user).set(byEmailKey, user).set(byColourKey, user);
    }
    if (!(await operation.commit()).ok) throw new TypeError("User with ID or email already exists");
  }
  return users;
}

async function getUser(id: number): Promise<User | null> {
  return (await kv.get<User>(["users", id])).value;
}

async function getUserByEmail(email: string): Promise<User | null> {
  return (await kv.get<User>(["users_by_email", email])).value;
}

async function listed(prefix: Deno.KvKey, options: Deno.KvListOptions = {}): Promise<User[]> {
  const users = [];
  for await (const { value } of kv.list<User>({ prefix }, options)) users.push(value);
  return users;
}

async function countColour(colour: string): Promise<number> {
  let count = 0;
  for await (const _ of kv.list({ prefix: ["users_by_colour", colour] })) count++;
  return count;
}

async function updateUser(id: number, change: (user: User) => Partial<User>): Promise<User> {
  for (;;) {
    const found = await kv.get<User>(["users", id]);
    if (found.value === null) throw new TypeError("No such user");
    const user = { ...found.value, ...change(found.value) };
    const before = rowsOf(found.value);
    const after = rowsOf(user);
    const operation = kv.atomic().check(found);
    if (user.email !== found.value.email) operation.check({ key: after[1], versionstamp: null }).delete(before[1]);
    if (user.colour !== found.value.colour) operation.delete(before[2]);
    for (const key of after) operation.set(key, user);
    if ((await operation.commit()).ok) return user;
  }
}

async function deleteUser(id: number): Promise<void> {
  let res = { ok: false };
  while (!res.ok) {
    const getRes = await kv.get<User>(["users", id]);
    if (getRes.value === null) return;
    const operation = kv.atomic().check(getRes);
    for (const key of rowsOf(getRes.value)) operation.delete(key);
    res = await operation.commit();
  }
}

// deno-lint-ignore no-explicit-any
const calls: Record<string, (...args: Arguments) => Promise<any>> = {
  get: getUser,
  get_by_email: getUserByEmail,
  list_colour: (colour) => listed(["users_by_colour", colour]),
  page: (colour) => listed(["users_by_colour", colour], { limit: workload.page }),
  scan: () => listed(["users"]),
  count: countColour,
  update_plain: (id, name) => updateUser(id, () => ({ name })),
  update_indexed: (id, colour) => updateUser(id, () => ({ colour })),
  update_unique: (id, email) => updateUser(id, () => ({ email })),
  insert: (...row) => insertUser(made(row)),
  delete: deleteUser,
};

// deno-lint-ignore no-explicit-any
function linesOf(row: string, results: any[]): string[] {
  if (row === "get" || row === "get_by_email") return results.map(line);
  if (row === "list_colour" || row === "scan" || row === "page") return results.flat().map(line);
  return row === "count" ? results.map(String) : [];
}

const pieces: Record<string, number> = { list_colour: 1, scan: 1, page: 25 };

async function run(row: string, budget: number, part: number) {
  const args = workload.arguments[row][part];
  const piece = pieces[row] ?? 500;
  const lines: string[] = [];
  let [seconds, done] = [0, 0];
  for (let begin = 0; begin < args.length && (begin === 0 || seconds < budget); begin += piece) {
    const [took, results] = await timed(calls[row], args.slice(begin, begin + piece), budget - seconds);
    seconds += took;
    done += results.length;
    for (const text of linesOf(row, results)) lines.push(text);
  }
  if (row === "list_colour" || row === "scan") lines.sort();
  return { seconds, done, objects: lines.length, digest: digest(lines) };
}

// deno-lint-ignore no-explicit-any
async function timed(call: (...args: Arguments) => Promise<any>, args: Arguments[], budget: number): Promise<[number, any[]]> {
  const results = [];
  const start = performance.now();
  const deadline = start + budget * 1000;
  for (let first = 0, size = 1; first < args.length; first += size, size = Math.min(2 * size, 64)) {
    for (const argument of args.slice(first, first + size)) results.push(await call(...argument));
    if (performance.now() >= deadline) break;
  }
  return [(performance.now() - start) / 1000, results];
}

async function open(folder: string, durability: string, key: number | null): Promise<number> {
  const start = performance.now();
  kv = await Deno.openKv(durability === "memory" ? ":memory:" : `${folder}/users.sqlite3`);
  if (key !== null) await getUser(key);
  return (performance.now() - start) / 1000;
}

async function bulk(batches?: number) {
  const start = performance.now();
  const users = batches === undefined ? workload.users : workload.users.slice(0, batches * workload.batch);
  for (let first = 0; first < users.length; first += workload.batch) {
    await insertUsers(users.slice(first, first + workload.batch).map(made));
  }
  return { seconds: (performance.now() - start) / 1000, done: users.length };
}

async function contend(key: number, budget: number, loops: number, most: number) {
  const start = performance.now();
  const deadline = start + budget * 1000;
  const loop = async () => {
    let done = 0;
    while (done < most && performance.now() < deadline) {
      try {
        await updateUser(key, ({ age }) => ({ age: age + 1 }));
        done++;
      } catch (error) {
        // Deno gives up waiting for another process's lock, and the caller has to try again.
        if (!String(error).includes("database is locked")) throw error;
      }
    }
    return done;
  };
  const done = await Promise.all(Array.from({ length: loops }, loop));
  return { seconds: (performance.now() - start) / 1000, done: done.reduce((a, b) => a + b) };
}

async function verify(taken: Arguments, colours: string[], emails: string[]) {
  let refused = false;
  try {
    await insertUser(made(taken));
  } catch {
    refused = true;
  }
  const counts = [];
  const found = [];
  for (const colour of colours) {
    counts.push(String(await countColour(colour)));
    found.push(...(await listed(["users_by_colour", colour])));
  }
  const scanned = await listed(["users"]);
  const keys = [];
  for (const email of emails) keys.push((await getUserByEmail(email))?.id ?? null);
  return {
    refused,
    keys,
    scan: digest(scanned.map(line).sort()),
    colours: digest(found.map(line).sort()),
    counts: digest(counts),
  };
}

async function handle(request: Record<string, Arguments[number]>) {
  switch (request.do) {
    case "load":
      workload = JSON.parse(await Deno.readTextFile(request.path));
      return {};
    case "open":
      return { seconds: await open(request.folder, request.durability, request.key) };
    case "reopen": {
      const seconds = [];
      for (let time = 0; time < request.times; time++) {
        seconds.push(await open(request.folder, request.durability, request.key));
        kv.close();
      }
      return { seconds };
    }
    case "bulk":
      return await bulk(request.batches);
    case "row":
      return await run(request.row, request.seconds, request.part ?? 0);
    case "contend":
      return await contend(request.key, request.seconds, request.loops, request.most);
    case "age":
      return { age: (await getUser(request.key))?.age };
    case "verify":
      return await verify(request.taken, request.colours, request.emails);
    case "memory":
      return { bytes: Deno.memoryUsage().rss };
    case "close":
      kv.close();
      return {};
    default:
      throw new TypeError(`unknown request ${request.do}`);
  }
}

for await (const text of createInterface({ input: (await import("node:process")).stdin })) {
  let reply;
  try {
    reply = await handle(JSON.parse(text));
  } catch (error) {
    reply = { error: error instanceof Error ? error.stack : String(error) };
  }
  await Deno.stdout.write(new TextEncoder().encode(JSON.stringify(reply) + "\n"));
}
