"""Particulars of the memory engine: names, sharing, and the cost of snapshots."""

from __future__ import annotations

import threading

import pytest

from kvmodels.core.operations import ReadRange
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import ClosedError, InvalidArgumentError
from tests.contract.shorthand import EVERYTHING, commit, keys, put


def test_every_store_without_a_name_is_new():
    one, two = MemoryEngine(), MemoryEngine()
    commit(one, put(b"a"))
    assert keys(two, EVERYTHING) == []


def test_a_named_store_is_shared_and_gone_with_its_last_handle():
    one, two = MemoryEngine(url="memory://shared"), MemoryEngine(url="memory://shared")
    other = MemoryEngine(url="memory://other")
    stamp = commit(one, put(b"a"))
    assert two.read([ReadRange(b"a")]).versionstamp == stamp
    assert keys(other, EVERYTHING) == []
    one.close()
    one.close()
    with pytest.raises(ClosedError):
        keys(one, EVERYTHING)
    assert keys(two, EVERYTHING) == [b"a"]
    two.close()
    again = MemoryEngine(url="memory://shared")
    assert keys(again, EVERYTHING) == []
    for engine in (again, other):
        engine.close()


def test_handles_of_one_name_agree_on_options():
    def clock() -> int:
        return 1

    one = MemoryEngine(url="memory://agree", clock=clock)
    MemoryEngine(url="memory://agree", clock=clock).close()
    MemoryEngine(url="memory://agree").close()
    with pytest.raises(InvalidArgumentError) as caught:
        MemoryEngine(url="memory://agree", clock=lambda: 2)
    assert caught.value.argument == "clock"
    with pytest.raises(InvalidArgumentError):
        MemoryEngine(url="memory://agree", snapshot_max_age=1)
    one.close()


@pytest.mark.parametrize("options", [{"url": "sqlite:///a"}, {"url": ""}, {"snapshot_max_age": 0}])
def test_arguments_that_make_no_sense_are_refused(options):
    with pytest.raises(InvalidArgumentError):
        MemoryEngine(**options)


def test_many_threads_open_and_close_one_name():
    errors: list[BaseException] = []

    def work():
        try:
            for _ in range(200):
                engine = MemoryEngine(url="memory://busy")
                commit(engine, put(b"a"))
                assert keys(engine, EVERYTHING) == [b"a"]
                engine.close()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []


def test_a_snapshot_keeps_only_what_changes_and_lets_it_go_when_it_is_closed_forgotten_or_too_old():
    now = [1_000]
    engine = MemoryEngine(clock=lambda: now[0], snapshot_max_age=1)
    commit(engine, *(put(b"k%03d" % i) for i in range(500)))
    views = engine.check_open()._views
    closed, forgotten, old = engine.snapshot(), engine.snapshot(), engine.snapshot()
    for _ in range(3):
        commit(engine, put(b"k001"), put(b"new"))
    assert [sorted(view.before) for view in views.values()] == [[b"k001", b"new"]] * 3
    closed.close()
    del forgotten
    assert len(views) == 1
    now[0] += 1_000
    commit(engine)
    assert len(views) == 0
    old.close()
