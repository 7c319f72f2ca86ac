"""Requests of attackers: refused, nothing stored, little memory used, and nothing told."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import pytest

from kvmodels import open_kv
from kvmodels.core.keys import encode_key
from kvmodels.engines.connect.wire import encoding
from kvmodels.engines.connect.wire.messages import (
    AtomicWriteMessage,
    CheckMessage,
    EnqueueMessage,
    KvValue,
    MutationMessage,
    ReadRangeMessage,
    SnapshotRead,
    WatchMessage,
)
from kvmodels.ext.serve import AccessToken, KvConnectServer, ServedStore
from tests.serve.asgi import Answer, Client
from tests.serve.serving import TOKEN

SECRETS = (TOKEN, "ledger", "stored_name", "stored value")
FAILS = encoding.encode_atomic_write(AtomicWriteMessage((CheckMessage(b"\x02never\0", bytes(10)),)))
"""A check that always fails. It is read before everything behind it, so that no write of this file may be applied."""

METHODS = ("snapshot_read", "atomic_write", "watch")
KEYS = [
    encode_key(("k",)),
    encode_key(("ledger", 1)),
    encode_key(("__kvmodels__", "header")),
    b"",
    b"\xff" * 2_100,
    b"\x02x",
]


class Attacker:
    """Draws requests; about half of them with a valid token."""

    def __init__(self, seed: int, client: Client) -> None:
        self.random = random.Random(seed)
        self.client = client

    async def attack(self) -> Answer:
        draw = self.random
        if draw.random() < 0.25:
            return await self.client.request(
                self.path(), self.garbage(), self.headers(), draw.choice(("POST", "GET", "PUT"))
            )
        method = draw.choice(METHODS)
        headers = dict(self.client.data_headers) if draw.random() < 0.7 else self.headers()
        if draw.random() < 0.1:
            headers["content-length"] = draw.choice(("9" * 5_000, "-1", "1e9", "0", "²"))
        path = f"{self.client.path}/v2/{method}"
        return await self.client.request(path, self.body(method), headers, pieces=draw.choice((1 << 20, 1 << 12)))

    def path(self) -> str:
        return self.random.choice(
            (
                "/",
                "",
                "/ledger",
                "/ledger/",
                "/ledger/v2",
                "//",
                "/../ledger",
                "/\0",
                "/ledger/v2/snapshot_read/",
                "/" * 5_000,
            )
        )

    def headers(self) -> dict[str, str]:
        draw = self.random
        token = draw.choice(
            (TOKEN, "", " ", "x" * 10_000, "é" * 20, "1" * 11 + "." + "0" * 64, "9" * 400 + ".0", TOKEN[:-1])
        )
        found = {"authorization": f"{draw.choice(('Bearer', 'bearer', 'Basic', ''))} {token}"}
        if draw.random() < 0.5:
            found = {**self.client.data_headers, **found}
        if draw.random() < 0.3:
            found["x-denokv-version"] = draw.choice(("", "0", "4", "1", "-3", "²"))
        return found

    def body(self, method: str) -> bytes:
        if self.random.random() < 0.2:
            return self.garbage()
        made = {"snapshot_read": self.read, "atomic_write": self.write, "watch": self.watch}[method]()
        if self.random.random() < 0.6:
            made = self.damaged(made)
        return FAILS + made if method == "atomic_write" else made

    def damaged(self, data: bytes) -> bytes:
        draw, made = self.random, bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(made) + 1)
            made[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(3))
        return bytes(made)

    def garbage(self) -> bytes:
        draw = self.random
        return draw.choice(
            (
                draw.randbytes(draw.randrange(200)),
                b"[" * 20_000,
                b'{"supportedVersions": [1e999, null]}',
                b"\x0a\xff\xff\xff\xff\x7f",
            )
        )

    def write(self) -> bytes:
        draw = self.random
        mutations = tuple(self.mutation() for _ in range(draw.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 1_001))))
        enqueues = tuple(
            EnqueueMessage(b"\xff", draw.choice((0, -1, 2**62)), (draw.choice(KEYS),)) for _ in range(draw.randrange(2))
        )
        return encoding.encode_atomic_write(AtomicWriteMessage((), mutations, enqueues))

    def mutation(self) -> MutationMessage:
        draw = self.random
        value = draw.choice(
            (None, KvValue(b"", 1), KvValue(b"\xff\x0f", 1), KvValue(b"\1", 2), KvValue(b"x", draw.randrange(-9, 9)))
        )
        bound = draw.choice((b"", b"\xff\x0f\x5a\xff\xff\xff\x7f", b"\xff\x0f" + b"A\x01" * 50))
        return MutationMessage(
            draw.choice(KEYS), value, draw.randrange(-1, 11), draw.choice((0, -7, 2**62)), bound, bound
        )

    def read(self) -> bytes:
        draw = self.random
        ranges = (
            ReadRangeMessage(draw.choice(KEYS), draw.choice(KEYS), draw.choice((-1, 0, 1, 1_000, 2**31 - 1)), True)
            for _ in range(draw.choice((0, 1, 10, 11)))
        )
        return encoding.encode_snapshot_read(SnapshotRead(tuple(ranges)))

    def watch(self) -> bytes:
        # One key too many, or one that is too long: a good watch would not end.
        return encoding.encode_watch(WatchMessage((b"k",) * 11 if self.random.random() < 0.5 else (b"k" * 3_000,)))


@pytest.mark.parametrize("requests", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_attacks_are_refused_without_a_word_about_the_store(requests):
    with open_kv("memory://ledger_of_attacks", codec="v8") as kv:
        kv.set(("stored_name",), "stored value")
        before = [entry.versionstamp for entry in kv.list(())]
        client = Client(KvConnectServer([ServedStore(kv, [AccessToken(TOKEN)], "/ledger")]), "/ledger")
        await client.connect()
        attacker = Attacker(22, client)
        statuses = set()
        for _ in range(requests):
            answer = await attacker.attack()
            statuses.add(answer.status)
            assert answer.status < 500
            if answer.status != 200:
                shown = (answer.text + json.dumps(answer.headers)).lower()
                assert not any(secret in shown for secret in SECRETS), shown
                assert len(answer.body) < 300
        assert statuses >= {200, 400, 401, 404, 413}
        assert [entry.versionstamp for entry in kv.list(())] == before


@pytest.mark.servers
async def test_large_requests_use_memory_in_proportion_to_their_limit():
    limit = 50_000
    with open_kv(codec="v8") as kv:
        client = Client(KvConnectServer([ServedStore(kv, [AccessToken(TOKEN)])], max_request_bytes=limit))
        await client.connect()
        bodies: list[tuple[str, bytes]] = [
            ("atomic_write", b"\x12\x00" * (limit // 2)),
            ("atomic_write", b"\x0a\x00" * 20_000),
            ("atomic_write", b"\x1a" + b"\xc0\xb8\x02" + b"\x1a\x00" * 20_000),
            ("snapshot_read", b"\x0b" * limit),
            ("snapshot_read", b"\x0a\x00" * 20_000),
            ("watch", b"\x0a\x00" * 20_000),
            ("watch", bytes(limit + 1)),
        ]
        tracemalloc.start()
        try:
            for method, body in bodies:
                answer = await client.call(method, body)
                assert answer.status in (400, 413), (method, body[:9])
            for attack in (b"[" * limit, b'{"a":' * 8_000, b"9" * limit):
                headers: dict[str, Any] = {"authorization": f"Bearer {TOKEN}"}
                assert (await client.request("/", attack, headers)).status == 400
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 10_000_000  # most for 20,000 empty parts, which become objects
