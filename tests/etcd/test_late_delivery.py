"""Requests of commits that reach the cluster after their client has given up. On etcd 3.4.23.

A proxy holds a request back and breaks the connection of the client, which cannot know whether the request will still
arrive. Later it lets the request through, and the answer of the server says what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels import Database, RetryPolicy
from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Set
from kvmodels.engines.etcd.engine import EtcdEngine
from kvmodels.engines.etcd.layout import keys_of
from kvmodels.engines.etcd.protocol import calls
from kvmodels.engines.etcd.protocol.rpc_pb2 import TxnResponse
from kvmodels.errors import CommitUnknownError
from tests.contract.shorthand import commit, counter, get, number, put
from tests.crowd import Order, Tally
from tests.etcd.proxy import TcpProxy, proxy_of
from tests.etcd.server import EtcdNode
from tests.etcd.test_engine import RawCluster, restore

pytestmark = pytest.mark.servers

MARK = b"a value to look for"
PATIENT: dict[str, Any] = {"busy_timeout": 60}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a server as long as it needs: it ends requests by the deadline that they carry."""
    monkeypatch.setattr(calls, "ANSWER_S", 60.0)


@pytest.fixture
def proxy(etcd34_server: EtcdNode) -> Iterator[TcpProxy]:
    with proxy_of(etcd34_server.port) as one:
        yield one


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """A prefix that no other test has."""
    return f"late/{request.node.nodeid.rpartition('::')[2].translate({91: '.', 93: None})}"


def hold(proxy: TcpProxy, mark: bytes) -> None:
    """Hold the first request back that has a mark in it."""
    left = ["hold_request"]
    proxy.plan = lambda data: left.pop() if left and mark in data else None


def delivered(proxy: TcpProxy) -> bool:
    """Deliver the request that was held back, and return whether it was applied."""
    assert proxy.lost[0] == "hold_request"
    answer = TxnResponse.FromString(proxy.deliver())
    assert answer.header.revision > 0
    return answer.succeeded


def value(engine: EtcdEngine) -> bytes | None:
    """The value of the key of the late commit."""
    row = get(engine, b"k")
    return None if row is None else row.value


@pytest.fixture
def unknown(proxy: TcpProxy, prefix: str) -> Iterator[Callable[[AtomicWrite], EtcdEngine]]:
    """Sends a commit that is held back, and returns the engine, whose counter ``n`` is 1."""
    engine = EtcdEngine(f"etcd://{proxy.endpoint}/{prefix}", **PATIENT)

    def send(write: AtomicWrite) -> EtcdEngine:
        commit(engine, counter(b"n", 1))
        hold(proxy, MARK)
        with pytest.raises(CommitUnknownError):
            engine.commit(write)
        assert number(engine, b"n") == 1
        assert value(engine) is None
        return engine

    yield send
    engine.close()


LATE = Set(b"k", MARK, 2)


def test_a_commit_that_arrives_late_is_applied_once_if_its_checks_still_hold(proxy: TcpProxy, unknown):
    engine = unknown(AtomicWrite((Check(b"k", None),), (LATE, Arithmetic("sum", b"n", 1))))
    assert delivered(proxy)
    assert number(engine, b"n") == 2
    assert value(engine) == MARK
    commit(engine, counter(b"n", 5))
    assert number(engine, b"n") == 5


def test_a_commit_that_arrives_late_is_refused_if_a_check_no_longer_holds(proxy: TcpProxy, unknown):
    engine = unknown(AtomicWrite((Check(b"k", None),), (LATE,)))
    commit(engine, put(b"k", b"of another program"))
    assert not delivered(proxy)
    assert value(engine) == b"of another program"


def test_a_sum_that_arrives_late_is_refused_if_the_counter_has_changed(proxy: TcpProxy, unknown):
    engine = unknown(AtomicWrite((), (LATE, Arithmetic("sum", b"n", 1))))
    commit(engine, Arithmetic("sum", b"n", 10))
    assert not delivered(proxy)
    assert number(engine, b"n") == 11
    assert value(engine) is None


def test_a_commit_without_checks_that_arrives_late_overwrites_what_came_before_it(proxy: TcpProxy, unknown):
    engine = unknown(AtomicWrite((), (LATE,)))
    commit(engine, put(b"k", b"of another program"))
    assert delivered(proxy)
    assert value(engine) == MARK


def test_a_commit_that_arrives_after_a_restore_was_accepted_is_refused(
    proxy: TcpProxy, unknown, etcd34_server: EtcdNode, prefix: str
):
    engine = unknown(AtomicWrite((), (LATE,)))
    raw = RawCluster(etcd34_server)
    restore(engine, raw)
    raw.close()
    EtcdEngine(etcd34_server.url(prefix), accept_restore=True, **PATIENT).close()
    assert not delivered(proxy)
    assert value(engine) is None


def opened(endpoint: str, prefix: str, **retry: Any) -> Database:
    """The store of a test."""
    policy = RetryPolicy(**{"deadline_s": 120, **retry})
    return Database(f"etcd://{endpoint}/{prefix}", models=[Order, Tally], retry=policy, **PATIENT)


@pytest.mark.parametrize("removed", [False, True])
def test_a_method_that_was_repeated_is_not_applied_again_by_its_first_request(
    proxy: TcpProxy, prefix: str, removed: bool
):
    with opened(proxy.endpoint, prefix) as db:
        db[Tally].create(id=1)
        hold(proxy, MARK)
        db[Order].create(id="late", number=MARK.decode(), writer=1)
        if removed:
            db[Order].remove("late")
        else:
            db[Order].patch("late", writer=2)
        assert not delivered(proxy)
        assert [(order.id, order.writer) for order in db[Order].all()] == ([] if removed else [("late", 2)])
        assert db.check().ok


@pytest.mark.parametrize("arrives_first", [True, False])
def test_the_outcome_of_a_token_is_true_whenever_the_request_arrives(
    proxy: TcpProxy, etcd34_server: EtcdNode, prefix: str, arrives_first: bool
):
    """All commits after the first one are lost, until the method gives up with an error that has a token."""
    with (
        opened(etcd34_server.endpoint, prefix) as db,
        opened(proxy.endpoint, prefix, attempts=1, deadline_s=0.1) as hasty,
    ):
        hasty[Tally].create(id=1)
        faults = iter(["hold_request"])
        written_by_commits = keys_of(f"/{prefix}").marker
        proxy.plan = lambda data: next(faults, "lose_request") if written_by_commits in data else None
        with pytest.raises(CommitUnknownError) as caught:
            hasty[Order].create(id="late", number=MARK.decode(), writer=1)
        token = caught.value.token
        assert token is not None
        if not arrives_first:
            assert db.outcome(token) is False
        assert delivered(proxy) is arrives_first
        assert db.outcome(token) is arrives_first
        assert [order.id for order in db[Order].all()] == ["late"] * arrives_first
        assert db.check().ok
