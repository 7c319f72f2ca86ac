"""Milliseconds of one call in etcd, beside the same calls made by hand on a gRPC channel.

``python -m benchmarks.etcd_floor etcd://host:2379/prefix`` for a cluster without TLS and users; the prefix should be
new. The sides take turns call by call, and the medians are shown. The floor of a read is one transaction with one range
for each round trip that the library makes, and that of a commit one transaction with the same operations and bytes.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import grpc

from kvmodels import Database, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.engines.etcd.protocol.exchange import EtcdCall
from kvmodels.engines.etcd.protocol.transport import EtcdThreadTransport

RECORDS: Final = 500
BATCH: Final = 10
PAIRS: Final = 400

Call = Callable[[], object]


class EtcdPerson(KvModel, collection="people"):
    """The record of the benchmark."""

    id: PrimaryKey[int]
    email: Unique[str]
    city: Indexed[str]


def person(number: int) -> EtcdPerson:
    """Return the record of a number."""
    return EtcdPerson(id=number, email=f"{number}@example.org", city=f"city {number % 25}")


def seconds(call: Call) -> float:
    """Return how long a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def recorded(call: Call) -> list[EtcdCall]:
    """Return the calls of etcd that a call of the library makes."""
    found: list[EtcdCall] = []
    answer = EtcdThreadTransport._answer

    def record(transport: EtcdThreadTransport, step: Any) -> Any:
        if isinstance(step, EtcdCall):
            found.append(step)
        return answer(transport, step)

    setattr(EtcdThreadTransport, "_answer", record)  # noqa: B010 - a method
    try:
        call()
    finally:
        setattr(EtcdThreadTransport, "_answer", answer)  # noqa: B010 - a method
    return found


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def by_hand(calls: list[EtcdCall], channel: grpc.Channel) -> Call:
    """Return a function that makes these calls again, on a channel of its own.

    A commit that was applied is made without its comparisons, so that it is applied each time.
    """
    made: list[tuple[Callable[..., object], Any, Any]] = []
    for one in calls:
        send: Callable[..., object] = channel.unary_unary(
            one.method.path,
            request_serializer=_serialized,
            response_deserializer=one.method.response.FromString,
        )
        request = type(one.request)()
        request.CopyFrom(one.request)
        if any(step.HasField("request_put") for step in getattr(request, "success", ())):
            request.ClearField("compare")
        made.append((send, request, one.metadata))

    def again() -> None:
        for send, request, metadata in made:
            send(request, metadata=metadata)

    return again


def measure(url: str) -> None:
    """Print the times of both sides and their ratio."""
    endpoint = url.partition("//")[2].partition("/")[0].partition(",")[0]
    numbers = itertools.count(RECORDS)
    with Database(url, models=[EtcdPerson], allow_lossy_server=True) as db, grpc.insecure_channel(endpoint) as channel:
        people = db[EtcdPerson]
        for first in range(0, RECORDS, BATCH):
            people.bulk_create([person(number) for number in range(first, first + BATCH)])
        operations: dict[str, Call] = {
            "get": lambda: people.get(7),
            "get by a unique value": lambda: people.get(email="7@example.org"),
            "list of 20": lambda: list(people.filter(city="city 7")[:20]),
            "insert": lambda: people.insert(person(next(numbers))),
            "kv.set": lambda: db.kv.set(("k",), 1),
        }
        for name, call in operations.items():
            call()  # reads the header
            floor = by_hand(recorded(call), channel)
            pairs = [(seconds(call), seconds(floor)) for _ in range(PAIRS)]
            ours, hand = (statistics.median(side) * 1_000 for side in zip(*pairs, strict=True))
            print(f"{name:22} kvmodels {ours:6.2f} ms   by hand {hand:6.2f} ms   times by hand {ours / hand:.2f}")


if __name__ == "__main__":
    measure(sys.argv[1])
