"""Versions, tokens, rights, watches and queues of the server, with its own clock."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, cast

import pytest

from kvmodels import Database, Indexed, InvalidArgumentError, KvModel, KvU64, PrimaryKey, open_async_kv, open_kv
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.keys import encode_key
from kvmodels.engines.connect.wire import decoding, encoding, fields
from kvmodels.engines.connect.wire.frames import FrameReader
from kvmodels.engines.connect.wire.messages import (
    AtomicWriteMessage,
    AtomicWriteOutput,
    CheckMessage,
    EnqueueMessage,
    KvValue,
    MutationMessage,
    MutationType,
    ReadRangeMessage,
    SnapshotRead,
    WatchMessage,
    WatchOutput,
    WriteStatus,
)
from kvmodels.ext.serve import AccessToken, KvConnectServer, ServedStore, application, refusals
from tests.serve.asgi import Answer, Client, Watching
from tests.serve.serving import TOKEN

CODEC = V8Codec()
READER = "may-only-read-from-here"


def served(store: Any, **options: Any) -> KvConnectServer:
    return KvConnectServer([ServedStore(store, [AccessToken(TOKEN), AccessToken(READER, readonly=True)])], **options)


def set_of(key: tuple[Any, ...], value: Any = 1.0) -> MutationMessage:
    return MutationMessage(encode_key(key), KvValue(*CODEC.encode(value)), MutationType.SET)


async def write(client: Client, *mutations: MutationMessage, enqueues: tuple[EnqueueMessage, ...] = ()) -> Answer:
    message = AtomicWriteMessage((), mutations, enqueues)
    return await client.call("atomic_write", encoding.encode_atomic_write(message))


def written(answer: Answer) -> AtomicWriteOutput:
    assert answer.status == 200, answer
    return decoding.decode_atomic_write_output(answer.body)


async def read(client: Client, key: tuple[Any, ...]) -> Answer:
    packed = encode_key(key)
    message = SnapshotRead((ReadRangeMessage(packed, packed + b"\0", 1),))
    return await client.call("snapshot_read", encoding.encode_snapshot_read(message))


async def test_the_highest_common_version_is_served():
    with open_kv(codec="v8") as kv:
        app = served(kv)
        client = Client(app, root="/mounted")
        client.path = "/mounted/"
        for offered, version in [((1, 2, 3), 3), ((2, 1), 2), ((3, 9), 3), ((1,), 1)]:
            found = json.loads((await client.exchange(offered, host="kv.example:81")).body)
            assert found["version"] == version
            absolute = "http://kv.example:81" if version == 1 else ""
            assert found["endpoints"] == [{"url": f"{absolute}/mounted/v2", "consistency": "strong"}]
        assert (await client.exchange((7,))).text == refusals.NO_COMMON_VERSION
        assert (await client.exchange((1,), host="bad/host")).text == refusals.INVALID_HOST
        for version in (1, 2, 3):
            plain = Client(app)
            assert (await plain.exchange((version,), host="kv.example")).status == 200
            found = await Client.connect(plain, (version if version > 1 else 2,))
            if version == 1:
                plain.data_headers = {
                    "authorization": plain.data_headers["authorization"],
                    "x-transaction-domain-id": found["databaseId"],
                }
            assert written(await write(plain, set_of(("v", version)))).status == WriteStatus.SUCCESS
        assert [entry.key for entry in kv.list(())] == [("v", 1), ("v", 2), ("v", 3)]


async def test_a_token_of_the_data_path_ends_and_is_renewed():
    clock = 1_900_000_000.0
    with open_kv(codec="v8") as kv:
        client = Client(served(kv, now=lambda: clock))
        found = await client.connect()
        assert found["expiresAt"] == "2030-03-17T18:46:40.000Z"
        assert TOKEN not in found["token"]
        clock += application.TOKEN_LIFETIME_S - 1
        assert (await read(client, ("a",))).status == 200
        clock += 1
        assert ((ended := await read(client, ("a",))).status, ended.text) == (401, refusals.INVALID_TOKEN)
        await client.connect()
        assert (await read(client, ("a",))).status == 200
        # Another process with the same access token serves the same clients.
        client.app = served(kv, now=lambda: clock)
        assert (await read(client, ("a",))).status == 200


async def test_several_stores_are_apart_and_read_only_tokens_only_read():
    with open_kv(codec="v8") as shop, open_kv(codec="v8") as blog:
        access = [AccessToken(TOKEN), AccessToken(READER, readonly=True)]
        app = KvConnectServer(
            [ServedStore(shop, access), ServedStore(blog, [AccessToken("of-the-blog-only")], "/blog")]
        )
        client = Client(app)
        await client.connect()
        assert written(await write(client, set_of(("k",)))).status == WriteStatus.SUCCESS
        client.path = "/blog"
        assert (await read(client, ("k",))).status == 401
        assert (await client.exchange()).status == 401
        of_blog = Client(app, "/blog", token="of-the-blog-only")
        await of_blog.connect()
        found = decoding.decode_snapshot_read_output((await read(of_blog, ("k",))).body)
        assert not found.ranges[0].values
        of_blog.data_headers["x-denokv-database-id"] = client.data_headers["x-denokv-database-id"]
        assert (await read(of_blog, ("k",))).text == refusals.INVALID_DATABASE
        reader = Client(app, token=READER)
        await reader.connect()
        assert (await read(reader, ("k",))).status == 200
        refused = await write(reader, set_of(("k",), 2.0))
        assert (refused.status, refused.text) == (400, refusals.READ_ONLY)
        assert shop.get(("k",)).value == 1.0


class Book(KvModel, collection="books"):
    isbn: PrimaryKey[str]
    genre: Indexed[str]


async def test_keys_of_models_are_written_only_with_the_right_to_do_so():
    keys = [("books", "1"), ("books_by_genre", "a", "1"), ("books_by_genre~7", "a"), ("__kvmodels__", "queue", 1)]
    keys += [("__kvmodels__", *rest) for rest in (("tenants", "a"), ("tenant", "a", "k"), ("announced", 1, "id", "a"))]
    with open_kv("memory://served_models", codec="v8") as kv:
        app = KvConnectServer(
            [ServedStore(kv, [AccessToken(TOKEN), AccessToken("a-program-of-kvmodels", model_writes=True)])]
        )
        client = Client(app)
        await client.connect()
        assert written(await write(client, set_of(keys[0]))).status == WriteStatus.SUCCESS  # no model yet
        kv.delete(keys[0])
        with Database("memory://served_models", models=[Book], codec="v8") as db:
            db[Book].create(isbn="7", genre="crime")
            for key in keys:
                for mutation in (set_of(key), MutationMessage(encode_key(key), None, MutationType.DELETE)):
                    refused = await write(client, set_of(("free",)), mutation)
                    assert (refused.status, refused.text) == (400, refusals.RESERVED)
            letter = EnqueueMessage(b"\xff\x0fT", 0, (encode_key(keys[0]),))
            refused = await write(client, enqueues=(EnqueueMessage(letter.payload, now(), letter.keys_if_undelivered),))
            assert refused.text == refusals.RESERVED
            assert db.kv.get(("free",)).versionstamp is None
            assert (
                written(await write(client, set_of(("bookshop",)), set_of((b"books",)))).status == WriteStatus.SUCCESS
            )
            trusted = Client(app, token="a-program-of-kvmodels")
            await trusted.connect()
            assert written(await write(trusted, set_of(keys[0], {"isbn": "1", "genre": "a"}))).status == 1
            assert not db.check().ok


def now() -> int:
    return int(time.time() * 1000)


KEY = encode_key(("k",))


def text_key(size: int) -> bytes:
    return b"\x02" + b"k" * (size - 2) + b"\0"


def bytes_set(key: bytes, size: int) -> MutationMessage:
    return MutationMessage(key, KvValue(bytes(size), 3), MutationType.SET)


def message(payload: bytes = b"", dead: tuple[bytes, ...] = (), schedule: tuple[int, ...] = ()) -> EnqueueMessage:
    return EnqueueMessage(payload, now(), dead, schedule)


def filled(size: int) -> AtomicWriteMessage:
    """Twelve values of 65,536 bytes with keys of one byte, and one that makes this sum of keys and values."""
    values = [65_536] * 12
    keys = [bytes([38 + at % 2]) for at in range(13)]
    return AtomicWriteMessage((), tuple(map(bytes_set, keys, [*values, size - sum(values) - 13])))


WRITES: dict[str, Any] = {
    refusals.TOO_MANY_CHECKS: (100, lambda n: AtomicWriteMessage((CheckMessage(KEY),) * n)),
    refusals.TOO_MANY_MUTATIONS: (1_000, lambda n: AtomicWriteMessage((), (bytes_set(KEY, 1),) * n)),
    "a key: " + refusals.KEY_TOO_LARGE: (2_048, lambda n: AtomicWriteMessage((), (bytes_set(text_key(n), 1),))),
    "a check: " + refusals.KEY_TOO_LARGE: (2_049, lambda n: AtomicWriteMessage((CheckMessage(text_key(n)),))),
    refusals.VALUE_TOO_LARGE: (65_536, lambda n: AtomicWriteMessage((), (bytes_set(KEY, n),))),
    refusals.WRITE_TOO_LARGE: (819_200, filled),
    "with messages: " + refusals.TOO_MANY_MUTATIONS: (
        1_000,
        lambda n: AtomicWriteMessage((), (bytes_set(KEY, 1),) * 500, (message(),) * (n - 500)),
    ),
    "a message: " + refusals.VALUE_TOO_LARGE: (65_536, lambda n: AtomicWriteMessage((), (), (message(bytes(n)),))),
    refusals.TOO_MANY_DEAD_LETTER_KEYS: (10, lambda n: AtomicWriteMessage((), (), (message(b"", (KEY,) * n),))),
    refusals.TOO_MANY_INTERVALS: (10, lambda n: AtomicWriteMessage((), (), (message(b"", (), (1,) * n),))),
    refusals.INTERVAL_TOO_LARGE: (3_600_000, lambda n: AtomicWriteMessage((), (), (message(b"", (), (n,)),))),
}
READS: dict[str, Any] = {
    refusals.TOO_MANY_RANGES: (10, lambda n: SnapshotRead((ReadRangeMessage(KEY, KEY + b"\0", 1),) * n)),
    refusals.TOO_MANY_ENTRIES: (1_000, lambda n: SnapshotRead((ReadRangeMessage(KEY, KEY, n),))),
    "a start: " + refusals.KEY_TOO_LARGE: (2_049, lambda n: SnapshotRead((ReadRangeMessage(text_key(n), KEY, 1),))),
    "an end: " + refusals.KEY_TOO_LARGE: (2_049, lambda n: SnapshotRead((ReadRangeMessage(KEY, text_key(n), 1),))),
}


@pytest.mark.parametrize(
    ("method", "limits"), [("atomic_write", WRITES), ("snapshot_read", READS)], ids=["writes", "reads"]
)
async def test_limits_hold_for_clients_that_do_not_check_them(method, limits):
    encode: Any = getattr(encoding, f"encode_{method}")
    with open_kv(codec="v8") as kv:
        client = Client(served(kv))
        await client.connect()
        for name, (largest, make) in limits.items():
            taken, refused = [await client.call(method, encode(make(largest + more))) for more in (0, 1)]
            assert taken.status == 200, (name, taken)
            assert (refused.status, refused.text) == (400, name.rpartition(": ")[2])


@pytest.mark.parametrize(
    ("method", "body", "text"),
    [
        ("snapshot_read", lambda: encoding.encode_snapshot_read(READS[refusals.TOO_MANY_RANGES][1](49_000)), "RANGES"),
        (
            "atomic_write",
            lambda: encoding.encode_atomic_write(WRITES[refusals.TOO_MANY_CHECKS][1](49_000)),
            "MUTATIONS",
        ),
        ("watch", lambda: encoding.encode_watch(WatchMessage((KEY,) * 49_000)), "WATCHED"),
    ],
)
async def test_a_request_of_too_many_parts_is_refused_before_they_are_decoded(monkeypatch, method, body, text):
    sent, inner = body(), list[int]()
    read = fields.read_fields

    def counted(data: bytes, most: int = fields.MAX_FIELDS) -> list[fields.Field]:
        inner.append(most)
        return read(data, most)

    monkeypatch.setattr("kvmodels.engines.connect.wire.decoding.read_fields", counted)
    with open_kv(codec="v8") as kv:
        client = Client(served(kv))
        await client.connect()
        refused = await client.call(method, sent)
        assert (refused.status, refused.text) == (400, vars(refusals)[f"TOO_MANY_{text}"])
    assert len(inner) == 1
    assert inner[0] <= 1_200


@pytest.mark.parametrize("versions", [[True], [1, True], ["1"], [1.0]])
async def test_a_version_that_is_no_integer_is_refused(versions):
    with open_kv(codec="v8") as kv:
        client = Client(served(kv))
        body = json.dumps({"supportedVersions": versions}).encode()
        answer = await client.request("/", body, {"authorization": f"Bearer {TOKEN}", "host": "kv.example"}, "POST")
        assert (answer.status, answer.text) == (400, refusals.INVALID_METADATA)


async def test_messages_are_delivered_to_listeners_of_the_store():
    async with open_async_kv(codec="v8") as kv:
        client = Client(served(kv))
        await client.connect()
        payload, _ = CODEC.encode({"to": "ada"})
        message = EnqueueMessage(payload, now(), (encode_key(("dead",)),), (1,))
        assert written(await write(client, set_of(("a",)), enqueues=(message,))).status == WriteStatus.SUCCESS
        handled: list[Any] = []

        async def handle(value: Any) -> None:
            handled.append(value)
            raise ValueError

        async with kv.listen(handle):
            async for [entry] in kv.watch([("dead",)], timeout=60):
                if entry.value is not None:
                    break
        assert (handled, entry.value) == ([{"to": "ada"}] * 2, {"to": "ada"})
        for faulty, text in [
            (EnqueueMessage(payload, 0), refusals.INVALID_DEADLINE),
            (EnqueueMessage(payload, now() + 40 * 86_400_000), refusals.INVALID_DEADLINE),
        ]:
            refused = await write(client, enqueues=(faulty,))
            assert (refused.status, refused.text) == (400, text)


async def test_a_watch_sends_pings_and_every_state_and_ends_with_its_client(monkeypatch):
    monkeypatch.setattr(application, "PING_INTERVAL_S", 0.01)
    async with open_async_kv(codec="v8") as kv:
        client = Client(served(kv))
        await client.connect()
        watching = Watching(client, encoding.encode_watch(WatchMessage((encode_key(("a",)), encode_key(("b",))))))
        frames = FrameReader()

        async def next_frame() -> bytes:
            async with asyncio.timeout(60):
                part = await watching.parts.get()
            assert part is not None
            [frame] = frames.feed(part)
            return frame

        async def next_state() -> WatchOutput:
            while not (frame := await next_frame()):
                pass
            return decoding.decode_watch_output(frame)

        first = await next_state()
        assert (first.status, [(one.changed, one.entry_if_changed) for one in first.keys]) == (1, [(True, None)] * 2)
        assert await next_frame() == b""
        await kv.set(("b",), KvU64(7))
        second = await next_state()
        entry = second.keys[1].entry_if_changed
        assert entry is not None
        assert (entry.value, entry.encoding) == (bytes([7, *bytes(7)]), 2)
        before = asyncio.all_tasks()
        await watching.leave()
        assert watching.task.done()
        assert len(asyncio.all_tasks()) < len(before)


async def test_ten_keys_are_watched_and_eleven_are_refused():
    async with open_async_kv(codec="v8") as kv:
        client = Client(served(kv))
        await client.connect()
        watching = Watching(client, encoding.encode_watch(WatchMessage((KEY,) * 10)))
        async with asyncio.timeout(60):
            assert await watching.parts.get()
        assert watching.status == 200
        await watching.leave()
        refused = await client.call("watch", encoding.encode_watch(WatchMessage((KEY,) * 11)))
        assert (refused.status, refused.text) == (400, refusals.TOO_MANY_WATCHED)


async def test_a_request_of_the_largest_size_is_read_and_one_byte_more_is_not():
    with open_kv(codec="v8") as kv:
        client = Client(served(kv, max_request_bytes=1_024))
        await client.connect()
        # An unknown field of the protocol, which is skipped: two bytes before its contents.
        answers = [await client.call("snapshot_read", b"\x7a" + encoding_of(size)) for size in (1_024, 1_025)]
        assert [answer.status for answer in answers] == [200, 413]
        assert answers[1].text == refusals.REQUEST_TOO_LARGE


def encoding_of(size: int) -> bytes:
    """The length of an unknown field and its contents, so that the request has so many bytes."""
    length = size - 3
    return bytes([length % 128 + 128, length // 128]) + bytes(length)


async def test_values_that_deno_cannot_read_are_named_as_such():
    with open_kv("memory://served_msgpack") as python, open_kv("memory://served_msgpack", codec="v8") as kv:
        python.set(("a",), {"x": 1})
        client = Client(served(kv))
        await client.connect()
        answer = await read(client, ("a",))
        assert (answer.status, answer.text) == (400, refusals.OTHER_ENCODING)
        with pytest.raises(InvalidArgumentError):
            ServedStore(python, [AccessToken(TOKEN)])
        with pytest.raises(InvalidArgumentError):
            ServedStore(cast("Any", kv.namespace("part")), [AccessToken(TOKEN)])


@pytest.mark.parametrize(
    "make",
    [
        lambda kv: AccessToken("too short"),
        lambda kv: AccessToken("with-a-line\nbreak-in-it"),
        lambda kv: AccessToken("with spaces in it"),
        lambda kv: ServedStore(kv, []),
        lambda kv: ServedStore(kv, [AccessToken(TOKEN), AccessToken(TOKEN, readonly=True)]),
        *(lambda kv, path=path: ServedStore(kv, [AccessToken(TOKEN)], path) for path in ("", "a", "/a/", "/..", "/v2")),
        lambda kv: KvConnectServer([]),
        lambda kv: KvConnectServer([ServedStore(kv, [AccessToken(TOKEN)])] * 2),
        lambda kv: KvConnectServer([ServedStore(kv, [AccessToken(TOKEN)])], max_request_bytes=7),
    ],
)
def test_wrong_arguments_are_refused_without_the_token(make):
    with open_kv(codec="v8") as kv, pytest.raises(InvalidArgumentError) as refused:
        make(kv)
    assert TOKEN not in str(refused.value)
    assert TOKEN not in repr(AccessToken(TOKEN))


async def test_a_store_that_is_closed_is_unavailable_and_not_named():
    kv = open_kv("memory://secret_name", codec="v8")
    client = Client(served(kv))
    await client.connect()
    kv.close()
    answer = await write(client, set_of(("a",)))
    assert (answer.status, answer.text) == (503, refusals.UNAVAILABLE)
