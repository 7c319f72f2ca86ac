"""Records random requests and the answers of Deno's own backend, for ``test_replay.py``.

    npm pack @deno/kv-linux-x64-gnu@0.14.0 && tar xf deno-kv-linux-x64-gnu-0.14.0.tgz
    python -m tests.serve.record package/deno-kv-napi.linux-x64-gnu.node

A failed mutation leaves the earlier ones of its write applied there, and nothing here. So a mutation that can fail is
the first one of its write.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from kvmodels import KvU64
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.keys import encode_key
from kvmodels.engines.connect.wire import decoding, encoding
from kvmodels.engines.connect.wire.messages import (
    AtomicWriteMessage,
    CheckMessage,
    KvValue,
    MutationMessage,
    MutationType,
    ReadRangeMessage,
    SnapshotRead,
)

FILE = Path(__file__).parents[1] / "data" / "kv_connect_replay.json.gz"
REQUESTS = 1_000

KEYS = [encode_key(key) for key in [*(("k", at) for at in range(8)), ("k", 1, "x"), ("k",), (b"\0",), (1.5, True)]]
NUMBERS: list[Any] = [0.0, 1.5, -1e300, float("inf"), 0, 7, -3, 2**64, 2**64 - 1, KvU64(1), KvU64(2**64 - 1)]
VALUES: list[Any] = [*NUMBERS, "text", b"\x00\xff", None, True, [1.0, {"a": 2}], {"x": "y"}]
FALLIBLE = (MutationType.SUM, MutationType.MIN, MutationType.MAX)
CODEC = V8Codec()


class Requests:
    """Draws requests; ``seen`` holds the versionstamps of the last commit to each key."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seen: dict[bytes, bytes] = {}

    def value(self, values: list[Any] = VALUES) -> KvValue:
        data, number = CODEC.encode(self.random.choice(values))
        return KvValue(data, number)

    def write(self) -> AtomicWriteMessage:
        draw = self.random
        checks = [self.check() for _ in range(draw.choice((0, 0, 0, 1, 1, 2, 10)))]
        mutations = [self.harmless() for _ in range(draw.randrange(4))]
        if draw.random() < 0.6:
            mutations.insert(0, self.fallible())
        if draw.random() < 0.05:
            mutations.append(MutationMessage(draw.choice(KEYS), *draw.choice(self.faults())))
        return AtomicWriteMessage(tuple(checks), tuple(mutations))

    def faults(self) -> list[tuple[Any, ...]]:
        good = self.value()
        return [(None, MutationType.SET), (good, 0), (good, 77), (good, MutationType.SET, -2), (KvValue(b"", 9), 1)]

    def check(self) -> CheckMessage:
        key = self.random.choice(KEYS)
        stamp = (
            self.seen.get(key, b"") if self.random.random() < 0.9 else self.random.choice((b"", b"short", bytes(10)))
        )
        return CheckMessage(key, stamp)

    def harmless(self) -> MutationMessage:
        key, draw = self.random.choice(KEYS), self.random.random()
        if draw < 0.2:
            return MutationMessage(key, KvValue(b"", 3), MutationType.DELETE)
        kind = MutationType.SET if draw < 0.9 else MutationType.SET_SUFFIX_VERSIONSTAMPED_KEY
        return MutationMessage(key, self.value(), kind, self.random.choice((0, -1, 1 << 42)))

    def fallible(self) -> MutationMessage:
        draw = self.random
        operand, kind = self.value(NUMBERS if draw.random() < 0.9 else VALUES), draw.choice(FALLIBLE)
        low = high = b""
        # Deno's backend ignores bounds of 64-bit integers and of minima, and so does the server.
        if kind == MutationType.SUM and draw.random() < 0.3:
            low, high = (CODEC.encode(draw.choice(NUMBERS[:8]))[0] if draw.random() < 0.6 else b"" for _ in range(2))
        clamp = draw.random() < 0.5
        return MutationMessage(draw.choice(KEYS), operand, kind, 0, low, high, clamp)

    def read(self) -> SnapshotRead:
        many = self.random.choice((0, 1, 1, 2, 3, 10, 11))
        return SnapshotRead(tuple(self.range() for _ in range(many)))

    def range(self) -> ReadRangeMessage:
        draw = self.random
        start, end = draw.choice(KEYS), draw.choice(KEYS)
        if draw.random() < 0.3:
            start, end = start[: draw.randrange(len(start))], end + b"\xff"
        elif draw.random() < 0.5:
            end = start + b"\0"
        return ReadRangeMessage(start, end, draw.choice((1, 1, 2, 5, 50, 50, 100, 1000, 0, -1)), draw.random() < 0.5)

    def learn(self, message: AtomicWriteMessage, body: bytes) -> None:
        stamp = decoding.decode_atomic_write_output(body).versionstamp
        if stamp:
            self.seen.update((one.key, stamp) for one in message.mutations)


def main() -> None:
    script = str(Path(__file__).with_suffix(".cjs"))
    command = ["node", script, sys.argv[1]]
    drawn = Requests(22)
    recorded: list[tuple[str, str, dict[str, str]]] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as backend:
        assert backend.stdin is not None
        assert backend.stdout is not None
        for _ in range(REQUESTS):
            write, read = drawn.write(), drawn.read()
            for method, body in (
                ("atomicWrite", encoding.encode_atomic_write(write)),
                ("snapshotRead", encoding.encode_snapshot_read(read)),
            ):
                backend.stdin.write(f"{method} {body.hex()}\n")
                backend.stdin.flush()
                answer = json.loads(backend.stdout.readline())
                recorded.append((method, body.hex(), answer))
                if method == "atomicWrite" and "body" in answer:
                    drawn.learn(write, bytes.fromhex(answer["body"]))
        backend.stdin.close()
    FILE.write_bytes(gzip.compress(json.dumps(recorded).encode(), mtime=0))


if __name__ == "__main__":
    main()
