"""How many round trips each verb costs in etcd, counted in the transport of the engine, and the table of the guide."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels import Database
from kvmodels.engines.etcd.protocol.exchange import EtcdCall
from kvmodels.engines.etcd.protocol.transport import EtcdThreadTransport
from tests.postgres.test_round_trips import CITIES, User, add_visit, in_a_transaction, user
from tests.source_tree import REPOSITORY

GUIDE = REPOSITORY / "docs" / "guides" / "etcd.md"


class Calls:
    """Counts the calls of threads."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.number = 0
        answer = EtcdThreadTransport._answer

        def counted(transport: EtcdThreadTransport, step: Any) -> Any:
            self.number += isinstance(step, EtcdCall)
            return answer(transport, step)

        patch.setattr(EtcdThreadTransport, "_answer", counted)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


@pytest.fixture
def db(url_of: Callable[..., str]) -> Iterator[Database]:
    with Database(url_of("etcd"), models=[User], allow_lossy_server=True, busy_timeout=60) as one:
        for first in range(0, 300, 10):
            one[User].bulk_create([user(number) for number in range(first, first + 10)])
        yield one


VERBS: dict[str, Callable[[Any, int], Any]] = {
    "get": lambda db, n: db[User].get(n),
    "get by a unique value": lambda db, n: db[User].get(email=f"{n}@example.org"),
    "in_bulk": lambda db, n: db[User].in_bulk([n, n + 1, n + 2]),
    "list of 20 through an index": lambda db, n: db[User].filter(city="Ulm")[:20].to_list(),
    "page of 20 through an index": lambda db, n: db[User].filter(city="Ulm").page(size=20),
    "list of 20 for 3 values": lambda db, n: db[User].filter(city__in=CITIES[:3])[:20].to_list(),
    "count": lambda db, n: db[User].filter(city="Ulm").count(),
    "exists": lambda db, n: db[User].filter(city="Ulm").exists(),
    "insert": lambda db, n: db[User].insert(user(1000 + n)),
    "create": lambda db, n: db[User].create(**user(2000 + n).model_dump()),
    "patch": lambda db, n: db[User].patch(n, visits=5),
    "mutate": lambda db, n: db[User].mutate(n, add_visit),
    "remove": lambda db, n: db[User].remove(n + 100),
    "transaction of a get and a save": in_a_transaction,
    "bulk_create of 10": lambda db, n: db[User].bulk_create([user(10_000 + 100 * n + i) for i in range(10)]),
    "kv.get": lambda db, n: db.kv.get(("k", n)),
    "kv.set": lambda db, n: db.kv.set(("k", n), 1),
    "sum": lambda db, n: db.kv.atomic().sum(("sum",), 1).commit(),
}


def test_each_verb_costs_as_many_round_trips_as_the_guide_says(db: Database, calls: Calls):
    told = dict(re.findall(r"^\| `?([^|`]+)`? \| (\d+) \|$", GUIDE.read_text("utf-8"), re.MULTILINE))
    counted = {}
    for verb, call in VERBS.items():
        call(db, 10)  # the first call reads the header, and learns what to predict
        call(db, 20)
        before = calls.number
        call(db, 30)
        counted[verb] = str(calls.number - before)
    print(counted)
    assert counted == told
