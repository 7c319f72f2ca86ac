"""Requests that Deno's own backend has answered, recorded by ``record.py``: the server gives the same answers."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kvmodels import open_kv
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.engines.connect.wire import decoding, encoding
from kvmodels.engines.connect.wire.messages import KvEntry, ValueEncoding, WriteStatus
from kvmodels.ext.serve import AccessToken, KvConnectServer, ServedStore, refusals
from tests.serve.asgi import Answer, Client
from tests.serve.record import FILE
from tests.serve.serving import TOKEN
from tests.worlds import in_test_servers

# The names of errors in the backend's library, and the texts that Deno's server makes of them.
TEXTS = {
    "InvalidMutationKind": refusals.INVALID_MUTATION,
    "InvalidMutationExpireAt": refusals.INVALID_EXPIRE_AT,
    "InvalidVersionstamp": refusals.INVALID_VERSIONSTAMP,
    "InvalidReadRangeLimit": refusals.INVALID_LIMIT,
    "TooManyReadRanges": refusals.TOO_MANY_RANGES,
    "ReadRangeTooLarge": refusals.TOO_MANY_ENTRIES,
    "DecodeError": refusals.INVALID_MESSAGE,
}


class Replay:
    """One run; ``stamps`` maps recorded versionstamps to those of this run."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.stamps: dict[bytes, bytes] = {}
        self.codec = V8Codec()
        self.seen: Counter[str] = Counter()

    async def write(self, body: bytes, expected: dict[str, str]) -> None:
        message = decoding.decode_atomic_write(body)
        checks = (replace(one, versionstamp=self.stamp(one.versionstamp)) for one in message.checks)
        sent = encoding.encode_atomic_write(replace(message, checks=tuple(checks)))
        answer = await self.client.call("atomic_write", sent)
        if not self.refused(answer, expected):
            theirs = decoding.decode_atomic_write_output(bytes.fromhex(expected["body"]))
            ours = decoding.decode_atomic_write_output(answer.body)
            assert (ours.status, ours.failed_checks) == (theirs.status, theirs.failed_checks)
            if theirs.versionstamp:
                self.stamps[theirs.versionstamp] = ours.versionstamp
            self.seen[WriteStatus(ours.status).name] += 1

    async def read(self, body: bytes, expected: dict[str, str]) -> None:
        answer = await self.client.call("snapshot_read", body)
        if not self.refused(answer, expected):
            theirs = decoding.decode_snapshot_read_output(bytes.fromhex(expected["body"]))
            ours = decoding.decode_snapshot_read_output(answer.body)
            assert replace(ours, ranges=()) == replace(theirs, ranges=())
            translated = [[self.shown(one, self.stamp(one.versionstamp)) for one in r.values] for r in theirs.ranges]
            assert [[self.shown(one, one.versionstamp) for one in r.values] for r in ours.ranges] == translated
            self.seen["rows"] += sum(map(len, translated))

    def refused(self, answer: Answer, expected: dict[str, str]) -> bool:
        if "error" not in expected:
            assert answer.status == 200, answer
            return False
        text = TEXTS.get(expected["error"], expected["error"])
        assert (answer.status, answer.text) == (400, text)
        self.seen[text] += 1
        return True

    def stamp(self, recorded: bytes) -> bytes:
        return self.stamps.get(recorded, recorded)

    def shown(self, entry: KvEntry, stamp: bytes) -> Any:
        key = entry.key
        for theirs, ours in self.stamps.items() if len(key) > 22 else ():
            key = key.replace(theirs.hex().encode(), ours.hex().encode())
        if entry.encoding != ValueEncoding.V8:
            return key, entry.encoding, entry.value, stamp
        value = self.codec.decode(entry.value, entry.encoding)
        return key, entry.encoding, repr(value), stamp


@pytest.mark.parametrize("url", ["memory://", *in_test_servers("sqlite://:memory:")])
async def test_the_answers_are_those_of_denos_own_backend(url):
    with open_kv(url, codec="v8") as kv:
        client = Client(KvConnectServer([ServedStore(kv, [AccessToken(TOKEN)])]))
        await client.connect()
        replay = Replay(client)
        for method, body, expected in json.loads(gzip.decompress(FILE.read_bytes())):
            run = replay.write if method == "atomicWrite" else replay.read
            await run(bytes.fromhex(body), expected)
        # What the recording covers.
        assert len(replay.seen) > 15, replay.seen
        assert min(replay.seen["SUCCESS"], replay.seen["CHECK_FAILURE"]) > 100
