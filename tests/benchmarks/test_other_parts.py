"""Imports, growth, many tasks and the command: each on a small scale."""

from __future__ import annotations

import pytest

from benchmarks import admin, concurrency, files, growth, imports, observers, serve, tenants
from benchmarks.__main__ import chosen, installed
from benchmarks.columns.registry import COLUMNS
from benchmarks.measuring import folder_bytes, resident_bytes
from benchmarks.processes import WorkerFailedError, WorkerProcess
from benchmarks.results import imported_by, machine

pytestmark = pytest.mark.servers


def test_imports_are_timed_in_turns():
    taken = imports.measure({"nothing": "pass", "json": "import json"}, rounds=3)
    assert [len(times) for times in taken.values()] == [3, 3]
    assert all(ms >= 0 for times in taken.values() for ms in times)


def test_every_library_but_deno_has_an_import():
    assert {imported_by(column) for column in COLUMNS.values()} - {"Deno KV"} == set(imports.IMPORTS) - {"pydantic"}
    assert set(imports.IMPORTS) < set(imports.EVERYTHING)


def test_only_what_the_columns_import_is_imported():
    needed = imports.needed_by([COLUMNS["floor-memory"]])
    both = {f"{library}, {what}" for library in ("kvmodels", "pydantic") for what in imports.BESIDE_PYDANTIC}
    assert set(needed) == {"floor memory", "kvmodels", "pydantic", *both}
    assert imports.needed_by(COLUMNS.values()) == imports.EVERYTHING


def test_an_import_finds_its_bytecode_compiled_where_nothing_may_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    imports.import_ms("import kvmodels.errors", str(tmp_path))
    compiled = {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")}
    assert {"errors", "lazy_modules"} <= compiled


def test_every_observer_is_measured_on_every_engine():
    rows = observers.measure(rounds=1, calls=3)
    assert {row[:2] for row in rows} == {
        (engine, name) for engine in ("memory", "sqlite") for name in observers.OBSERVERS
    }
    assert all(get > 0 and insert > 0 for _, _, get, insert, _ in rows)
    steps = {row[:2]: row[4] for row in rows}
    assert all(steps[engine, "none"] < steps[engine, "counters"] for engine in ("memory", "sqlite"))


def test_every_page_of_the_admin_is_measured_at_every_size():
    medians = admin.measure(sizes=(40, 1_200), rounds=1)
    assert list(medians) == list(admin.paths(40))
    assert all(len(of_sizes) == 2 and min(of_sizes) > 0 for of_sizes in medians.values())


def test_many_tenants_are_filled_counted_killed_in_apply_and_listened_to():
    found = tenants.measured("sqlite", tenants.Sizes(tenants=6, views=5, listened=3, commits=2), say=lambda _: None)
    for title, call in found.calls.items():
        assert call.warm[0] == call.store[0], title
        assert call.cold[0] == call.store[0] + 1, title
        assert 0 < call.store[1] < call.warm[1] < call.cold[1], title
    assert (found.header_bytes > 100, found.view_bytes > 1_000) == (True, True)
    assert found.killed_at[0] >= 2
    assert 0 < found.resumed.applied <= 6 + tenants.LARGE_TENANTS - found.killed_at[-1] + 1
    assert (found.current.applied, found.current.commits) == (0, 0)
    assert list(found.idle_reads) == [1, 3]
    assert "reads of a listener" in tenants.shown({"sqlite": found})


def test_every_store_is_served_to_the_real_deno():
    found = serve.measure(calls=5, rounds=2)
    assert list(found) == list(serve.STORES)
    assert all(len(rounds) == 2 and min(map(min, rounds)) > 0 for rounds in found.values())


def test_growth_measures_the_same_rows_at_every_size():
    grown = growth.measure([COLUMNS["floor-memory"]], sizes=(700, 800), rounds=2, progress=lambda _: None)
    assert list(grown) == ["700", "800"]
    for by_row in grown.values():
        assert tuple(by_row) == growth.ROWS
        for row, by_column in by_row.items():
            samples = by_column["floor-memory"]
            assert len(samples) == 2, row
            assert all(sample is not None and sample[1] > 0 for sample in samples), row


def test_many_tasks_are_compared_with_one():
    taken = concurrency.measure([COLUMNS["kvmodels-async-memory"]], rounds=1, tasks=30, progress=lambda _: None)
    units = {kind: [sample[1] for sample in samples] for kind, samples in taken["kvmodels-async-memory"].items()}
    alone, together = [10] * concurrency.PAIRS, [30] * concurrency.PAIRS
    assert units == {"one": alone, "many": together, "one set": [30] * concurrency.PAIRS, "many sets": together}


def test_one_task_and_many_take_turns_in_a_round(tmp_path, monkeypatch):
    asked: list[str] = []
    ask = WorkerProcess.ask

    def noted(process, do, **arguments):
        asked.append(arguments.get("row", do))
        return ask(process, do, **arguments)

    monkeypatch.setattr(WorkerProcess, "ask", noted)
    concurrency.measure([COLUMNS["kvmodels-async-memory"]], rounds=1, tasks=30, progress=lambda _: None)
    turn = ["update_plain", "together", "alone", "together", "got"]
    assert asked == ["load", "open", "bulk", *turn * concurrency.PAIRS, "scan", "close"]


def test_a_process_tells_why_it_failed():
    with WorkerProcess(COLUMNS["floor-memory"]) as process, pytest.raises(WorkerFailedError, match="opened first"):
        process.ask("age", key=1)


def test_columns_are_chosen_by_parts_of_their_names():
    assert [column.name for column in chosen(["floor-m", "floor-lmdb-r"])] == ["floor-memory", "floor-lmdb-relaxed"]
    assert COLUMNS["django-sqlite-commit"].title == "Django, sqlite"


def test_a_peer_that_is_not_installed_is_an_error(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="not installed: floor-memory"):
        installed(chosen(["floor-memory"]))


def test_the_operating_system_is_asked_for_sizes(tmp_path):
    assert folder_bytes(tmp_path) == 0
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    assert folder_bytes(tmp_path) >= 100_000
    assert resident_bytes() > 1_000_000
    assert machine(["no-such-library"])["no-such-library"] == "not installed"


def test_a_file_is_read_through_kvmodels_and_by_hand():
    times = files.measured(megabytes=3, rounds=1)
    assert min(times) > 0
    assert times.ratio == times.kvmodels / times.by_hand
