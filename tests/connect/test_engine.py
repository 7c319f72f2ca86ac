"""The client engine over a sound server: limits, functions, prefixes, what is refused, closing and forks."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from kvmodels import Database, InvalidArgumentError, KvModel, KvU64, Limits, PrimaryKey, UnsupportedError, open_kv
from kvmodels.core.operations import (
    VACANT,
    Apply,
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Counted,
    Delete,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    Set,
    SuffixFollow,
    point,
)
from kvmodels.engines.connect.settings import TOKEN_VARIABLE
from kvmodels.errors import (
    ClosedError,
    InvalidValueError,
    OperationTooLargeError,
    ReadOnlyError,
)
from tests.connect.scripted import ACCESS_TOKEN, DATA_TOKEN
from tests.contract.shorthand import commit, counter, number, put

NEVER = b"\xff" * 10


def writes(server) -> int:
    return sum(path.endswith("atomic_write") for path in server.paths())


@pytest.mark.parametrize(("checks", "limits"), [(100, Limits.DENO), (10, Limits.DENOKV_SERVER)])
def test_the_limits_are_those_of_the_server_which_is_asked_once(server, reach, checks, limits):
    server.max_checks = checks
    engine = reach()
    assert engine.limits == limits
    assert server.paths() == ["/", "/v2/atomic_write"]
    assert engine.read([ReadRange(b"\0", b"\xff")]).ranges == [[]]
    smaller = reach(limits=Limits.MATTERMOST)
    assert (smaller.limits.max_key_runes, smaller.limits.max_checks) == (50, checks)


def test_a_database_for_reading_only_writes_nothing_and_asks_for_no_limits(server, reach):
    engine = reach(readonly=True)
    with pytest.raises(ReadOnlyError):
        engine.commit(AtomicWrite((), (put(b"k"),)))
    assert (engine.limits, server.paths()) == (Limits.DENOKV_SERVER, ["/"])


def test_a_read_is_one_request_with_its_guard_and_never_a_part_for_the_whole(server, reach):
    engine = reach()
    for first in range(0, 1_200, 400):
        stamp = commit(engine, *(put(b"k%04d" % at) for at in range(first, first + 400)))
    server.requests.clear()
    ten = [point(b"k%04d" % at) for at in range(9)]
    assert isinstance(engine.read(ten, Guard(b"k1199", stamp)), ReadResult)
    assert engine.read(ten, Guard(b"k1199", None)) == GuardFailed(stamp)
    assert len(server.requests) == 2
    for ranges, limit in (
        ([*ten, *ten], "max_ranges"),
        ([ReadRange(b"k", b"l")], "max_read_entries"),
        ([ReadRange(b"k", b"l", 1_001)], "max_read_entries"),
    ):
        with pytest.raises(OperationTooLargeError) as caught:
            engine.read(ranges)
        assert caught.value.limit == limit
    assert len(server.requests) == 3
    assert len(engine.read([ReadRange(b"k", b"l", 1_000)]).ranges[0]) == 1_000


@pytest.mark.parametrize("reverse", [False, True])
def test_counts_of_any_size_are_of_pages_with_the_guard(server, reach, reverse):
    engine = reach()
    for first in range(0, 2_400, 800):
        commit(engine, *(put(b"k%04d" % at) for at in range(first, first + 800)))
    whole = ReadRange(b"k", b"l", None, reverse)
    ranges = [whole, *[point(b"k%04d" % at) for at in range(15)], whole._replace(limit=1_500), whole._replace(limit=0)]
    assert engine.count(ranges, Guard(b"absent", None)) == Counted([2_400, *[1] * 15, 1_500, 0], b"")
    assert engine.count([whole._replace(limit=999)]) == Counted([999], b"")
    assert engine.count(ranges, Guard(b"absent", NEVER)) == engine.count([], Guard(b"absent", NEVER))
    assert engine.count([], Guard(b"absent", NEVER)) == GuardFailed(None)


def test_functions_of_many_writers_are_all_applied(server, reach):
    server.names_failed_checks = False
    engine = reach(busy_timeout=60.0)

    def increased(stored: tuple[bytes, int] | None) -> tuple[bytes, int]:
        return (int.from_bytes(stored[0], "little") + 1 if stored else 1).to_bytes(8, "little"), 2

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: commit(engine, Apply(b"n", increased, 8), put(b"other")), range(40)))
    assert number(engine, b"n") == 40


def test_a_sum_beside_another_write_of_its_key_and_one_that_is_refused_apply_nothing(server, reach):
    engine = reach()
    commit(engine, counter(b"n", 40), Arithmetic("sum", b"n", 2), Arithmetic("max", b"n", 7))
    assert number(engine, b"n") == 42
    commit(engine, Delete(b"n"), Arithmetic("sum", b"n", 5))
    assert number(engine, b"n") == 5
    commit(engine, put(b"text"))
    with pytest.raises(InvalidValueError):
        engine.commit(AtomicWrite((), (put(b"new"), Arithmetic("sum", b"text", 1))))
    sent = writes(server)
    for wrong in (Arithmetic("sum", b"n", 2**64), Set(b"n", b"1234567", 2), put(b"n", expire_at=2**63)):
        with pytest.raises(InvalidValueError):
            engine.commit(AtomicWrite((), (put(b"new"), wrong)))
    for unsupported in (Set(b"n", b"\x80", 4), Apply(b"n", lambda _: (b"\x80", 4), 1)):
        with pytest.raises(UnsupportedError):
            engine.commit(AtomicWrite((), (put(b"new"), unsupported)))
    assert (writes(server), engine.read([point(b"new")]).ranges) == (sent, [[]])


def test_sums_are_sent_before_what_a_server_might_apply_although_it_refuses_them(server, reach):
    engine = reach()
    commit(engine, put(b"a"), Arithmetic("sum", b"n", 1), Delete(b"b"))
    body = server.requests[-1].body
    assert body.index(b"\x0a\x01n") < body.index(b"\x0a\x01a") < body.index(b"\x0a\x01b")


def test_a_vacant_prefix_and_other_checks_are_reported_by_position(reach):
    engine = reach()
    vacant, absent = Check(b"\x02a\x00", VACANT), Check(b"\x02a\x00\x02x\x00", None)
    done = engine.commit(AtomicWrite((absent, vacant), (put(b"\x02a\x00\x02x\x00"),)))
    assert isinstance(done, Committed)
    assert engine.commit(AtomicWrite((absent, vacant), (put(b"k"),))) == Conflict((0, 1))
    assert engine.commit(AtomicWrite((Check(b"\x02b\x00", VACANT), absent), (put(b"k"),))) == Conflict((1,))


def test_too_many_checks_with_those_of_functions_are_refused_before_anything_is_sent(server, reach):
    server.max_checks = 10
    engine = reach()
    sent = writes(server)
    mutations = tuple(Apply(b"k%d" % at, lambda _: (b"v", 3), 1) for at in range(11))
    with pytest.raises(OperationTooLargeError) as caught:
        engine.commit(AtomicWrite((), mutations))
    assert (caught.value.limit, caught.value.maximum, writes(server)) == ("max_checks", 10, sent)


class Session(KvModel, collection="sessions"):
    id: PrimaryKey[int]

    class Meta:
        ttl = 60.0


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]


def test_what_the_protocol_does_not_have_is_refused_before_anything_is_written(server, tmp_path):
    with Database(server.url, models=[Note], access_token=ACCESS_TOKEN) as db:
        db[Note].create(id=1)
        sent = writes(server)
        refused: tuple[Callable[[], object], ...] = (
            lambda: db[Note].create(id=2, expire_in=60),
            lambda: db.kv.snapshot().__enter__(),
            lambda: db.kv.backup(tmp_path / "copy.db"),
            lambda: next(iter(db.kv.watch(prefix=("notes",)))),
            lambda: db.kv.dump(tmp_path / "dump.jsonl"),
            lambda: db.kv.atomic().sum(("n",), 1, keep_deadline=True).commit(),
            lambda: db.kv.atomic().mutate("sum", ("n",), 1.5, keep_deadline=True).commit(),
        )
        for call in refused:
            with pytest.raises(UnsupportedError) as caught:
                call()
            assert caught.value.hint
        engine: Any = db.kv._opening.engine
        lacking: tuple[Callable[[], object], ...] = (
            engine.snapshot,
            lambda: engine.read([], follow=SuffixFollow(b"", 0)),
            lambda: engine.subscribe(print),
        )
        for call in lacking:
            with pytest.raises(UnsupportedError):
                call()
        assert writes(server) == sent
    with pytest.raises(UnsupportedError):
        Database(server.url, models=[Session], access_token=ACCESS_TOKEN)
    with pytest.raises(UnsupportedError):
        Database(server.url, codec="msgpack", access_token=ACCESS_TOKEN)
    assert writes(server) == sent + 2, "both have asked for the limits"


def test_a_key_with_a_lifetime_is_sent_with_its_deadline(server):
    with open_kv(server.url, access_token=ACCESS_TOKEN) as kv:
        kv.set(("k",), "v", expire_in=60)
        assert kv.get(("k",)).expires_at is None
    (row,) = server.engine.read([ReadRange(b"\0", b"\xff")]).ranges[0]
    assert abs(row.expire_at - server.engine.now_ms() - 60_000) < 60_000


def test_a_sum_with_a_lifetime_is_computed_here_because_servers_disregard_its_deadline(server):
    with open_kv(server.url, access_token=ACCESS_TOKEN) as kv:
        kv.atomic().sum(("n",), 1, expire_in=60).commit()
        kv.atomic().max(("n",), 7, expire_in=60).sum(("other",), 1).commit()
        assert [entry.value for entry in kv.list(())] == [KvU64(7), KvU64(1)]
        n, other = server.engine.read([ReadRange(b"\0", b"\xff")]).ranges[0]
        assert abs(n.expire_at - server.engine.now_ms() - 60_000) < 60_000
        assert other.expire_at is None
        kv.set(("text",), "t")
        with pytest.raises(InvalidValueError):
            kv.atomic().sum(("text",), 1, expire_in=60).commit()


def test_the_token_is_needed_and_shown_nowhere(server, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    for wrong in (None, "", "two words", "naïve", 7):
        with pytest.raises(InvalidArgumentError) as caught:
            open_kv(server.url, access_token=wrong)
        assert caught.value.argument == "access_token"
    monkeypatch.setenv(TOKEN_VARIABLE, ACCESS_TOKEN)
    with open_kv(server.url) as kv:
        engine: Any = kv._opening.engine
        shown = repr([kv, engine, engine._session, engine._session._served, engine._options, engine.url])
        assert ACCESS_TOKEN not in shown
        assert DATA_TOKEN not in shown


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "https:///path",
        "http://me:secret@localhost:1",
        "http://localhost:port",
        "http://local host",
        "http://x/#a",
    ],
)
def test_a_url_that_cannot_be_a_database_is_refused_without_its_secrets(url):
    with pytest.raises(InvalidArgumentError) as caught:
        open_kv(url, access_token=ACCESS_TOKEN)
    assert caught.value.argument == "url"
    assert "secret" not in str(caught.value)


def test_everything_raises_after_closing(server, reach):
    engine = reach()
    engine.close()
    engine.close()
    for call in (
        lambda: engine.read([point(b"k")]),
        lambda: engine.count([]),
        lambda: engine.commit(AtomicWrite()),
        engine.snapshot,
        engine.now_ms,
        lambda: engine.sweep(1),
    ):
        with pytest.raises(ClosedError):
            call()


def test_one_engine_serves_threads_and_several_event_loops_one_after_the_other(server, reach):
    engine = reach()

    async def work(name: bytes) -> int:
        form = engine.native()
        assert form is engine.native()
        await asyncio.gather(*(form.commit(AtomicWrite((), (put(name + b"%d" % at),))) for at in range(20)))
        counted = await form.count([ReadRange(b"\0", b"\xff")])
        await form.aclose()
        with pytest.raises(ClosedError):
            await form.read([])
        assert isinstance(counted, Counted)
        return counted.numbers[0]

    assert [asyncio.run(work(name)) for name in (b"a", b"b")] == [20, 40]
    assert engine.count([ReadRange(b"\0", b"\xff")]).numbers == [40]


async def test_a_cancelled_commit_is_awaited_and_its_outcome_is_a_note(server, reach):
    engine = reach()
    form = engine.native()
    task = asyncio.create_task(form.commit(AtomicWrite((), (put(b"k"),))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.__notes__ == ["the commit was applied"]
    assert len((await form.read([point(b"k")])).ranges[0]) == 1
    await form.aclose()


def test_a_forked_child_gets_an_error_and_the_parent_goes_on(reach):
    engine = reach()
    commit(engine, put(b"a"))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answers = []
        for call in (lambda: engine.read([point(b"a")]), lambda: engine.commit(AtomicWrite()), engine.snapshot):
            try:
                call()
                answers.append("no error")
            except BaseException as error:  # noqa: BLE001 - the parent judges it
                answers.append(f"{type(error).__name__} {getattr(error, 'reason', '')}")
        with suppress(BaseException):
            engine.close()
        os.write(writing, pickle.dumps(answers))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pickle.load(pipe) == ["ClosedError forked"] * 3
    os.waitpid(child, 0)
    commit(engine, put(b"b"))
    assert len(engine.read([ReadRange(b"\0", b"\xff")]).ranges[0]) == 2
