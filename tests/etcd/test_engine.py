"""Particulars of the engine on etcd: revisions, compactions, clocks of clients, endpoints, lost answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from kvmodels import open_kv
from kvmodels.core.operations import (
    VACANT,
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    ReadRange,
    Set,
    point,
)
from kvmodels.engines.etcd import reads
from kvmodels.engines.etcd.engine import EtcdEngine
from kvmodels.engines.etcd.errors import busy
from kvmodels.engines.etcd.layout import StoreRecord, encode_record, keys_of
from kvmodels.engines.etcd.protocol.exchange import TXN, CallFailedError, EtcdCall
from kvmodels.engines.etcd.protocol.rpc_pb2 import (
    DeleteRangeRequest,
    PutRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
)
from kvmodels.engines.etcd.protocol.transport import EtcdThreadTransport
from kvmodels.errors import (
    CommitUnknownError,
    EngineError,
    EngineTimeoutError,
    ForeignFileError,
    InvalidArgumentError,
    OperationTooLargeError,
    ResumeExpiredError,
    SnapshotExpiredError,
    StorageFullError,
    UnsupportedError,
)
from tests.contract.conftest import Clock
from tests.contract.shorthand import EVERYTHING, commit, counter, keys, number, put, rows
from tests.etcd.server import EtcdNode

ALL = ReadRange(b"", b"\xff", 1_000)


class Calls:
    """Counts the transactions that are sent, and lets some of them fail.

    Attributes:
        sent: the number since it was last set.
        fail: is given each call before it is sent, and raises what becomes of it.
        lose: whether the next answer of a transaction is lost after it was carried out.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.fail: Callable[[EtcdCall], None] = lambda call: None
        self.lose: CallFailedError | None = None

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        answered = EtcdThreadTransport._answer

        def answer(transport: EtcdThreadTransport, step: Any) -> Any:
            if not isinstance(step, EtcdCall) or step.method is not TXN:
                return answered(transport, step)
            self.sent += 1
            self.fail(step)
            found = answered(transport, step)
            lost, self.lose = self.lose, None
            if lost is not None:
                raise lost
            return found

        patch.setattr(EtcdThreadTransport, "_answer", answer)


class RawCluster:
    """Calls past the engine."""

    def __init__(self, node: EtcdNode) -> None:
        self._node = node
        self._channel = grpc.insecure_channel(node.endpoint)

    def txn(self, *ops: RequestOp) -> TxnResponse:
        call = self._channel.unary_unary(
            TXN.path,
            request_serializer=TxnRequest.SerializeToString,
            response_deserializer=TxnResponse.FromString,
        )
        found: TxnResponse = call(TxnRequest(success=ops), timeout=60)
        return found

    def put(self, key: bytes, value: bytes) -> None:
        self.txn(RequestOp(request_put=PutRequest(key=key, value=value)))

    def remove(self, start: bytes, end: bytes) -> None:
        self.txn(RequestOp(request_delete_range=DeleteRangeRequest(key=start, range_end=end)))

    def compact(self) -> int:
        """Compact up to the present revision; return it."""
        revision = self.txn().header.revision
        self._node.ask("kv/compaction", revision=str(revision))
        return revision

    def close(self) -> None:
        self._channel.close()


@pytest.fixture
def calls() -> Iterator[Calls]:
    counted = Calls()
    with pytest.MonkeyPatch.context() as patch:
        counted.watch(patch)
        yield counted


@pytest.fixture
def raw(etcd_server: EtcdNode) -> Iterator[RawCluster]:
    cluster = RawCluster(etcd_server)
    yield cluster
    cluster.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(url_of: Callable[..., str], clock: Clock) -> Iterator[Callable[..., EtcdEngine]]:
    """Opens engines of this test, which are closed after it."""
    engines: list[EtcdEngine] = []

    def open_one(name: str = "app", **options: Any) -> EtcdEngine:
        given = {"allow_lossy_server": True, "clock": clock, **options}
        engines.append(EtcdEngine(url_of("etcd", name), **given))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()


@pytest.fixture
def engine(opened: Callable[..., EtcdEngine]) -> EtcdEngine:
    return opened()


def prefix_of(engine: EtcdEngine) -> str:
    return "/" + engine.url.partition("//")[2].partition("/")[2]


def test_a_read_and_a_commit_are_one_transaction_each(engine, calls):
    stamp = commit(engine, put(b"a"))
    assert calls.sent == 1
    engine.commit(AtomicWrite((Check(b"a", stamp), Check(b"b", None), Check(b"c", VACANT)), (put(b"b"), Delete(b"x"))))
    engine.read([point(b"a"), EVERYTHING])
    engine.count([EVERYTHING, point(b"a")])
    assert calls.sent == 4
    engine.read([EVERYTHING], follow=lambda found: [point(row.key) for row in found[0]])
    assert calls.sent == 6
    assert engine.commit(AtomicWrite((Check(b"a", None),), ())) == Conflict((0,))
    assert calls.sent == 7


def test_a_snapshot_reads_what_the_one_before_it_has_read_first_while_it_begins(engine, clock, calls):
    commit(engine, put(b"header", b"1"), put(b"late", expire_at=clock.now + 5))
    for key, value in ((b"header", b"1"), (b"header", b"2"), (b"late", b"v"), (b"late", b"v")):
        commit(engine, put(b"header", value))
        with engine.snapshot() as state:
            commit(engine, put(b"header", b"later"))
            assert [row.value for row in rows(state, point(key))] == [value]
    calls.sent = 0
    with engine.snapshot() as state:
        assert keys(state, point(b"late")) == [b"late"]
        assert calls.sent == 1
    clock.now += 5
    with engine.snapshot() as state:
        assert keys(state, point(b"late")) == []
        assert keys(state, point(b"late"), include_expired=True) == [b"late"]
        assert keys(state, point(b"absent")) == []


def test_a_check_of_a_row_with_a_deadline_is_decided_by_a_second_transaction(engine, clock, calls):
    stamp = commit(engine, put(b"k", expire_at=clock.now + 10))
    calls.sent = 0
    assert isinstance(engine.commit(AtomicWrite((Check(b"k", stamp),), (put(b"seen"),))), Committed)
    assert calls.sent == 2
    clock.now += 10
    assert engine.commit(AtomicWrite((Check(b"k", stamp),), ())) == Conflict((0,))
    assert isinstance(engine.commit(AtomicWrite((Check(b"k", None),), (put(b"k"),))), Committed)


def test_a_prefix_below_which_many_rows_are_expired_is_vacant(engine, clock):
    for batch in range(3):
        commit(engine, *(put(b"\x02p\x00%d%02d" % (batch, n), expire_at=clock.now + 5) for n in range(30)))
    vacant = AtomicWrite((Check(b"\x02p\x00", VACANT),), (put(b"taken"),))
    assert engine.commit(vacant) == Conflict((0,))
    clock.now += 5
    assert isinstance(engine.commit(vacant), Committed)
    commit(engine, put(b"\x02p\x00299"))
    assert engine.commit(vacant) == Conflict((0,))


def test_a_sum_beside_other_writers_is_repeated_and_a_failed_check_is_not(engine, calls):
    commit(engine, counter(b"n", 1))
    other = iter([counter(b"n", 10), counter(b"n", 20)])

    def write_first(call: EtcdCall) -> None:
        request: Any = call.request
        if len(request.success) > 1 and request.compare and (mutation := next(other, None)) is not None:
            calls.fail = lambda _: None
            commit(engine, mutation)
            calls.fail = write_first

    calls.fail = write_first
    commit(engine, Arithmetic("sum", b"n", 1))
    assert number(engine, b"n") == 21
    calls.sent = 0
    refused = AtomicWrite((Check(b"n", None),), (Arithmetic("sum", b"n", 1),))
    assert engine.commit(refused) == Conflict((0,))
    assert calls.sent == 2  # the state, and the rows in it


def test_an_operation_that_is_too_large_is_refused_before_anything_is_sent(engine, calls):
    calls.sent = 0
    for write, limit in (
        (AtomicWrite(tuple(Check(b"%d" % n, b"\1" * 10) for n in range(64))), "max_checks"),
        (AtomicWrite((), tuple(put(b"%d" % n, expire_at=5) for n in range(64))), "max_mutations"),
        (AtomicWrite((), (put(b"k", bytes(1_600_000)),)), "max_operation_bytes"),
    ):
        with pytest.raises(OperationTooLargeError) as caught:
            engine.commit(write)
        assert (caught.value.limit, caught.value.limits) == (limit, "ETCD")
    assert calls.sent == 0
    most = AtomicWrite(
        tuple(Check(b"%d" % n, b"\1" * 10) for n in range(63)), tuple(put(b"%d" % n, expire_at=5) for n in range(60))
    )
    assert engine.commit(most) == Conflict(tuple(range(63)))


def test_a_versionstamped_key_and_a_backup_are_refused(engine, tmp_path, calls):
    calls.sent = 0
    with pytest.raises(UnsupportedError):
        engine.commit(AtomicWrite((), (put(b"a"), Set(b"log", b"", 3, versionstamped=True))))
    with pytest.raises(UnsupportedError, match="snapshot save"):
        engine.backup(str(tmp_path / "backup.db"))
    assert calls.sent == 0


def test_a_lost_answer_is_reported_and_the_commit_is_not_sent_again(engine, calls):
    for failure in (
        CallFailedError("UNAVAILABLE", "Socket closed"),
        CallFailedError("DEADLINE_EXCEEDED", "Deadline Exceeded"),
        CallFailedError("UNAVAILABLE", "etcdserver: request timed out"),
    ):
        calls.sent, calls.lose = 0, failure
        with pytest.raises(CommitUnknownError) as caught:
            engine.commit(AtomicWrite((), (Set(b"k", failure.details.encode(), 3),)))
        assert failure.details in str(caught.value.reason)
        assert calls.sent == 1
        assert [row.value for row in rows(engine, point(b"k"))] == [failure.details.encode()]


def test_a_commit_that_was_certainly_not_carried_out_is_sent_again(engine, calls):
    failures = [
        CallFailedError("UNAVAILABLE", "etcdserver: no leader"),
        CallFailedError("UNAVAILABLE", "failed to connect to all addresses; last error: Connection refused"),
        CallFailedError("UNAUTHENTICATED", "etcdserver: invalid auth token"),
    ]

    def fail(_: EtcdCall) -> None:
        if failures:
            raise failures.pop(0)

    calls.sent, calls.fail = 0, fail
    stamp = commit(engine, put(b"k"))
    assert calls.sent == 4
    assert [row.versionstamp for row in rows(engine, point(b"k"))] == [stamp]


def test_a_read_without_an_answer_is_sent_again_until_its_time_is_over(opened, calls):
    engine, hasty = opened(), opened()
    commit(engine, put(b"k"))
    calls.lose = CallFailedError("UNAVAILABLE", "Socket closed")
    assert keys(engine, EVERYTHING) == [b"k"]

    def fail(_: EtcdCall) -> None:
        raise CallFailedError("UNAVAILABLE", "Socket closed")

    calls.fail = fail
    hasty._store.options = hasty._store.options._replace(busy_timeout=0.5)
    with pytest.raises(EngineTimeoutError):
        hasty.read([EVERYTHING])


def test_endpoints_that_are_down_are_passed_over(etcd_server, url_of, clock):
    url = url_of("etcd").replace("etcd://", "etcd://127.0.0.1:1,127.0.0.1:2,")
    for _ in range(6):  # which endpoint is asked first is a matter of chance
        engine = EtcdEngine(url, clock=clock, allow_lossy_server=True)
        commit(engine, put(b"k"))
        assert keys(engine, EVERYTHING) == [b"k"]
        engine.close()


def test_a_release_that_loses_commits_is_read_and_not_written(opened, url_of):
    commit(opened(), put(b"k"))
    with pytest.raises(UnsupportedError, match="13766") as caught:
        opened(allow_lossy_server=False)
    assert "allow_lossy_server=True" in str(caught.value.hint)
    assert keys(opened(allow_lossy_server=False, readonly=True), EVERYTHING) == [b"k"]


def test_more_operations_than_the_servers_take_are_refused_at_opening(opened):
    with pytest.raises(InvalidArgumentError) as caught:
        opened(max_txn_ops=20_000)
    assert caught.value.argument == "max_txn_ops"


def test_the_size_is_that_of_the_database_of_a_member(engine, etcd_server):
    (size,) = engine.sizes().values()
    assert size == int(etcd_server.ask("maintenance/status")["dbSize"])


def test_stores_whose_prefixes_begin_alike_do_not_mix(opened):
    outer, inner, beside = opened("app"), opened("app/inner"), opened("app2")
    for engine, key in ((outer, b"outer"), (inner, b"inner"), (beside, b"beside")):
        commit(engine, put(key))
    assert [keys(engine, EVERYTHING) for engine in (outer, inner, beside)] == [[b"outer"], [b"inner"], [b"beside"]]


def test_an_absent_store_is_not_made_by_a_reader(opened):
    for options in ({"readonly": True}, {"create": False}):
        with pytest.raises(EngineError, match="no store") as caught:
            opened("nothing", **options)
        assert caught.value.reason == "absent"
    opened("nothing").close()
    opened("nothing", create=False).close()


def test_a_prefix_that_holds_something_else_is_left_alone(opened, url_of, raw):
    head = keys_of("/" + url_of("etcd", "foreign").partition("//")[2].partition("/")[2])
    raw.put(head.store, b"of another program")
    with pytest.raises(ForeignFileError):
        opened("foreign")
    raw.put(head.store, b"kvmodels\x63" + bytes(16))
    with pytest.raises(UnsupportedError, match="later release"):
        opened("foreign")


def test_a_store_that_was_removed_is_not_written_anew(engine, raw):
    commit(engine, put(b"k"))
    place = keys_of(prefix_of(engine))
    raw.remove(place.store, place.end)
    with pytest.raises(EngineError, match="gone"):
        engine.read([EVERYTHING])
    with pytest.raises(EngineError, match="gone"):
        commit(engine, put(b"k"))


def restore(engine: EtcdEngine, raw: RawCluster) -> StoreRecord:
    """Make the record of a store say that it is of another cluster, as after the restore of a backup."""
    known = engine._store.known
    assert known is not None
    record = StoreRecord(known.record.base, known.record.cluster_id ^ 1)
    raw.put(keys_of(prefix_of(engine)).store, encode_record(record))
    return record


def test_a_restored_store_is_written_only_after_it_was_accepted(opened, raw):
    engine = opened()
    before = commit(engine, put(b"k"))
    position = engine.wait_for_commit(b"", 0)
    restore(engine, raw)
    assert keys(engine, EVERYTHING) == [b"k"]
    with pytest.raises(EngineError, match="accept_restore=True"):
        commit(engine, put(b"lost"))
    with pytest.raises(EngineError, match="accept_restore=True"):
        opened()
    assert keys(opened(readonly=True), EVERYTHING) == [b"k"]
    accepting = opened(accept_restore=True)
    after = commit(accepting, put(b"new"))
    assert after > before
    assert rows(accepting, point(b"k"))[0].versionstamp > before
    assert engine.commit(AtomicWrite((Check(b"k", before),), ())) == Conflict((0,))
    with pytest.raises(ResumeExpiredError):
        accepting.changes(ALL, position)
    assert commit(opened(), put(b"again")) > after


def test_a_commit_is_not_applied_to_a_store_whose_base_has_changed(opened, raw, calls):
    engine = opened()
    stamp = commit(engine, put(b"k"))

    def accept(_: EtcdCall) -> None:
        calls.fail = lambda _: None
        restore(engine, raw)
        opened(accept_restore=True)

    calls.fail = accept
    assert engine.commit(AtomicWrite((Check(b"k", stamp),), (put(b"k", b"lost"),))) == Conflict((0,))
    assert [row.value for row in rows(engine, point(b"k"))] == [b"v"]


def test_the_clock_that_is_ahead_counts_once_its_program_has_written(opened):
    behind, ahead = Clock(1_000_000), Clock(1_060_000)
    slow, fast = opened(clock=behind), opened(clock=ahead)
    commit(slow, put(b"k", expire_at=1_030_000))
    assert keys(fast, EVERYTHING) == []
    assert keys(slow, EVERYTHING) == [b"k"]
    commit(fast, put(b"other"))
    assert keys(slow, EVERYTHING) == [b"other"]
    assert slow.count([EVERYTHING]).numbers == [1]
    assert slow.now_ms() == 1_060_000
    commit(slow, put(b"third"))
    assert opened(clock=behind).read([EVERYTHING]).ranges[0][0].key == b"other"
    assert opened(clock=Clock(5)).now_ms() == 1_060_000


def test_old_entries_of_deadlines_are_removed_when_their_time_has_come(engine, clock, raw):
    for later in (1, 2, 3):
        commit(engine, put(b"k", expire_at=clock.now + later))
    commit(engine, put(b"gone", expire_at=clock.now + 1))
    commit(engine, Delete(b"gone"))
    commit(engine, put(b"k", expire_at=clock.now + 100))
    clock.now += 50
    before = engine.wait_for_commit(b"", 0)
    assert engine.sweep(10) == 0
    assert engine.wait_for_commit(b"", 0) == before
    assert engine._background.due().deadline_ms == clock.now + 50
    clock.now += 50
    assert engine.sweep(10) == 1
    assert engine._background.due().deadline_ms is None


@pytest.mark.servers
@pytest.mark.parametrize(
    ("support", "use", "told"),
    [
        ("0", "", "UnsupportedError: forked"),
        ("1", "", "1"),
        ("1", "parent._opening.engine._running += 1", "UnsupportedError: forked"),
        ("1", "asyncio.run(in_a_loop())", "UnsupportedError: forked"),
    ],
    ids=["without support", "with support", "a call is under way", "a loop has used it"],
)
def test_a_child_opens_its_own_store_only_if_grpc_survives_forks(url_of, support, use, told):
    code = (
        "import asyncio, os, sys, warnings\nwarnings.simplefilter('ignore')\n"
        "from kvmodels import ClosedError, UnsupportedError, open_async_kv, open_kv\n"
        "async def in_a_loop():\n    global other\n    other = open_async_kv(sys.argv[1], allow_lossy_server=True)\n"
        "    await other.get(('k',))\n"
        "parent = open_kv(sys.argv[1], allow_lossy_server=True)\nparent.set(('k',), 1)\n"
        f"{use}\n"
        "child = os.fork()\n"
        "if child:\n    os.waitpid(child, 0)\n    os._exit(0)\n"
        "try:\n    parent.get(('k',))\nexcept ClosedError as error:\n    hint = str(error.hint)\n"
        "assert ('gunicorn' in hint) == (sys.argv[2] != '1'), hint\n"
        "try:\n    print(open_kv(sys.argv[1], allow_lossy_server=True).get(('k',)).value, flush=True)\n"
        "except UnsupportedError as error:\n    print(f'{type(error).__name__}: {error.reason}', flush=True)\n"
        "os._exit(0)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, url_of("etcd"), told],
        env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": support},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert shown.strip() == told


def test_a_compaction_ends_a_snapshot(engine, raw):
    commit(engine, put(b"k", b"old"))
    with engine.snapshot() as state:
        commit(engine, put(b"k", b"new"))
        assert [row.value for row in rows(state, point(b"k"))] == [b"old"]
        raw.compact()
        for read in (lambda: state.read([EVERYTHING]), lambda: state.count([EVERYTHING])):
            with pytest.raises(SnapshotExpiredError) as caught:
                read()
            assert "new snapshot" in str(caught.value.hint)
    assert [row.value for row in rows(engine, point(b"k"))] == [b"new"]


def test_a_compaction_in_the_middle_of_a_long_read_begins_it_again(engine, raw, calls, monkeypatch):
    monkeypatch.setattr(reads, "FIRST_PAGE", 4)
    monkeypatch.setattr(reads, "LONGEST_PAGE", 4)
    monkeypatch.setattr(reads, "SHORTEST_PAGE", 4)
    commit(engine, *(put(b"k%02d" % n) for n in range(30)))
    pages: list[int] = []

    def compact(call: EtcdCall) -> None:
        pages.append(len(pages))
        if len(pages) == 4:
            calls.fail = lambda _: None
            commit(engine, Delete(b"k00"), put(b"k99"))
            raw.compact()

    calls.fail = compact
    assert keys(engine, EVERYTHING) == [b"k%02d" % n for n in range(1, 30)] + [b"k99"]
    assert len(pages) == 4


def test_changes_before_a_compaction_say_from_where_on_there_are_some(engine, raw):
    first = commit(engine, put(b"a"))
    commit(engine, put(b"b"))
    raw.compact()
    third = commit(engine, put(b"c"))
    with pytest.raises(ResumeExpiredError) as caught:
        engine.changes(ALL, first)
    assert "compact the cluster less often" in str(caught.value.hint)
    oldest = bytes.fromhex(caught.value.oldest or "")
    assert first < oldest < third
    assert [change.key for change in engine.changes(ALL, oldest).changes] == [b"c"]


def test_expired_rows_are_no_part_of_a_count_before_they_are_swept(engine, clock, calls):
    commit(engine, *(put(b"k%d" % n, expire_at=clock.now + n) for n in range(1, 6)), put(b"k9"))
    commit(engine, put(b"k1"))  # its old deadline is still in the index
    clock.now += 3
    assert engine.count([EVERYTHING, ReadRange(b"k2", b"k4"), point(b"k1"), point(b"k2")]).numbers == [4, 0, 1, 0]
    assert engine.count([ReadRange(b"k0", b"l", 2)]).numbers == [2]


def test_more_expired_rows_than_a_count_looks_at_are_counted_by_reading(engine, clock, monkeypatch):
    monkeypatch.setattr(reads, "MOST_EXPIRED", 2)
    commit(engine, *(put(b"k%d" % n, expire_at=clock.now + n) for n in range(1, 9)))
    clock.now += 5
    assert engine.count([EVERYTHING]).numbers == [3]


SPACE_EXCEEDED = CallFailedError("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")


def is_commit(call: EtcdCall) -> bool:
    return any(one.HasField("request_put") or one.HasField("request_txn") for one in call.request.success)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("applied", "error"), [(True, CommitUnknownError), (False, StorageFullError)])
def test_a_sweep_that_exceeds_the_quota_may_have_been_carried_out(engine, clock, calls, applied, error):
    commit(engine, put(b"k", expire_at=clock.now + 1))
    clock.now += 2

    def fail(call: EtcdCall) -> None:
        if is_commit(call):
            calls.fail = lambda _: None
            if not applied:
                raise SPACE_EXCEEDED
            calls.lose = SPACE_EXCEEDED

    calls.fail = fail
    with pytest.raises(error):
        engine.sweep(10)
    assert engine.sweep(10) == 1 - applied


@pytest.mark.parametrize("applied", [True, False])
def test_a_store_whose_first_commit_exceeds_the_quota_is_opened_if_it_was_made(opened, calls, applied):
    def fail(call: EtcdCall) -> None:
        if is_commit(call) and not applied:
            raise SPACE_EXCEEDED
        if is_commit(call):
            calls.lose = SPACE_EXCEEDED

    calls.fail = fail
    if applied:
        opened("made").close()
    else:
        with pytest.raises(StorageFullError):
            opened("made")
    calls.fail = lambda _: None
    opened("made", create=not applied).close()


@pytest.mark.parametrize("watched", [{"keys": [("k",)]}, {"prefix": ()}])
def test_a_watch_that_met_a_timeout_goes_on_at_the_next_item(url_of, calls, watched):
    with open_kv(url_of("etcd", "watched"), allow_lossy_server=True, busy_timeout=60) as kv:
        kv.set(("k",), 1)
        watch = kv.watch(**watched)
        assert [entry.value for entry in next(watch)] == [1]

        def fail(_: EtcdCall) -> None:
            raise busy("etcd://host/app", "no leader")  # at once, in place of after `busy_timeout=`

        calls.fail = fail
        with pytest.raises(EngineTimeoutError) as caught:
            next(watch)
        assert caught.value.code == "KV902"
        calls.fail = lambda _: None
        kv.set(("k",), 2)
        assert [entry.value for entry in next(watch)] == [2]
