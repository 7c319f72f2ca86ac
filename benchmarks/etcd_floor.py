"""Milliseconds of one call in etcd, beside the same calls made by hand on a gRPC channel.

``python -m benchmarks.etcd_floor etcd://host:2379/prefix`` for a cluster without TLS and users; the prefix should be
new. The sides take turns call by call, and the medians are shown. By hand, the same requests are built again and sent,
with the same comparisons, operations and bytes, whose keys and values are at hand; only the token of a write is another
one, since a second request with the same token would be refused. What an insert has stored is removed in between,
outside of the times. A request by hand that is not carried out ends the benchmark.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from kvmodels import Database, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.engines.etcd.protocol.exchange import EtcdCall
from kvmodels.engines.etcd.protocol.transport import EtcdThreadTransport

RECORDS: Final = 500
BATCH: Final = 10
PAIRS: Final = 400

TOKEN: Final = re.compile(rb"(token\x00\x02)[0-9a-f]{32}")

Call = Callable[[], object]


class EtcdPerson(KvModel, collection="people"):
    """The record of the benchmark."""

    id: PrimaryKey[int]
    email: Unique[str]
    city: Indexed[str]


def person(number: int) -> EtcdPerson:
    """Return the record of a number."""
    return EtcdPerson(id=number, email=f"{number}@example.org", city=f"city {number % 25}")


def nothing() -> None:
    """Undo nothing."""


def seconds(call: Call) -> float:
    """Return how long a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


class Recorder:
    """Keeps the calls of etcd that the library makes.

    Attributes:
        calls: since this was last emptied.
    """

    def __init__(self) -> None:
        self.calls: list[EtcdCall] = []
        answer = EtcdThreadTransport._answer

        def record(transport: EtcdThreadTransport, step: Any) -> Any:
            if isinstance(step, EtcdCall):
                self.calls.append(step)
            return answer(transport, step)

        setattr(EtcdThreadTransport, "_answer", record)  # noqa: B010 - a method


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _fields(message: Any, token: bytes) -> dict[str, Any]:
    """Return the fields of a message with another token, of which its class makes a message."""
    return {field.name: _plain(value, token) for field, value in message.ListFields()}


def _plain(value: Any, token: bytes) -> Any:
    if isinstance(value, bytes):
        return TOKEN.sub(rb"\g<1>" + token, value)
    if isinstance(value, Message):
        return _fields(value, token)
    return value if isinstance(value, (str, int)) else [_plain(one, token) for one in value]


def by_hand(calls: list[EtcdCall], channel: grpc.Channel) -> Callable[[], list[Any]]:
    """Return a function that builds these calls again, makes them on a channel of its own, and returns the answers."""
    token = uuid.uuid4().hex.encode()
    made = [
        (
            channel.unary_unary(
                one.method.path,
                request_serializer=_serialized,
                response_deserializer=one.method.response.FromString,
            ),
            type(one.request),
            _fields(one.request, token),
            one.metadata,
        )
        for one in calls
    ]

    def again() -> list[Any]:
        return [send(kind(**fields), metadata=metadata) for send, kind, fields, metadata in made]

    return again


def one_pair(call: Call, undo: Call, recorder: Recorder, channel: grpc.Channel) -> tuple[float, float]:
    """Return the seconds of a call of the library, and of the same requests by hand."""
    recorder.calls.clear()
    ours = seconds(call)
    floor = by_hand(list(recorder.calls), channel)
    undo()
    answers: list[Any] = []
    hand = seconds(lambda: answers.extend(floor()))
    if not all(one.succeeded for one in answers):
        raise RuntimeError("a comparison of a request by hand has failed")
    return ours, hand


def measure(url: str) -> None:
    """Print the times of both sides and their ratio."""
    endpoint = url.partition("//")[2].partition("/")[0].partition(",")[0]
    recorder = Recorder()
    with Database(url, models=[EtcdPerson], allow_lossy_server=True) as db, grpc.insecure_channel(endpoint) as channel:
        people = db[EtcdPerson]
        for first in range(0, RECORDS, BATCH):
            people.bulk_create([person(number) for number in range(first, first + BATCH)])
        new = iter([person(RECORDS) for _ in range(PAIRS + 1)])
        operations: dict[str, tuple[Call, Call]] = {
            "get": (lambda: people.get(7), nothing),
            "get by a unique value": (lambda: people.get(email="7@example.org"), nothing),
            "list of 20": (lambda: list(people.filter(city="city 7")[:20]), nothing),
            "insert": (lambda: people.insert(next(new)), lambda: people.remove(RECORDS)),
            "kv.set": (lambda: db.kv.set(("k",), 1), nothing),
        }
        for name, (call, undo) in operations.items():
            one_pair(call, undo, recorder, channel)  # reads the header, and connects
            undo()
            pairs = []
            for _ in range(PAIRS):
                pairs.append(one_pair(call, undo, recorder, channel))
                undo()
            ours, hand = (statistics.median(side) * 1_000 for side in zip(*pairs, strict=True))
            print(f"{name:22} kvmodels {ours:6.2f} ms   by hand {hand:6.2f} ms   times by hand {ours / hand:.2f}")


if __name__ == "__main__":
    measure(sys.argv[1])
