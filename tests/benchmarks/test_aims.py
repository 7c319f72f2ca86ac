"""Which aims a run reaches is computed, and every miss is told."""

from __future__ import annotations

from benchmarks import aims, page
from benchmarks.results import Figures, Results


def run(**rows: dict[str, float]) -> Results:
    """Three rounds in which every call of a column takes so many microseconds."""
    figures: Figures = {
        row: {name: [[cost, 1e6]] * 3 for name, cost in columns.items()} for row, columns in rows.items()
    }
    return Results(machine={"Python": "3"}, records=10, rounds=3, figures=figures)


def found(results: Results, aim: str) -> dict[str, bool]:
    return {one.what: one.reached for one in aims.findings(results) if one.aim == aim}


def test_a_peer_must_be_slower_and_far_slower_in_lookups():
    results = run(
        get={"kvmodels-sqlite-relaxed": 10, "django-sqlite-relaxed": 81, "peewee-sqlite-relaxed": 79},
        insert={"kvmodels-sqlite-relaxed": 10, "django-sqlite-relaxed": 11, "peewee-sqlite-relaxed": 9},
    )
    assert found(results, "ahead of peers") == {
        "get by key: Django, sqlite, relaxed": True,
        "get by key: Peewee, sqlite, relaxed": False,
        "insert one: Django, sqlite, relaxed": True,
        "insert one: Peewee, sqlite, relaxed": False,
    }


def test_peers_are_compared_at_the_same_durability_only():
    results = run(insert={"kvmodels-sqlite-commit": 10, "django-sqlite-relaxed": 1})
    assert found(results, "ahead of peers") == {}


def test_behind_a_peer_is_enough_only_close_to_a_floor_that_is_behind_too():
    names = ("kvmodels-sqlite-relaxed", "peewee-sqlite-relaxed", "floor-sqlite-relaxed")
    for costs, reached in (((11.5, 9, 10), True), ((12.5, 9, 10), False), ((11.5, 10.5, 10), False)):
        results = run(scan=dict(zip(names, costs, strict=True)))
        assert found(results, "ahead of peers") == {"full scan: Peewee, sqlite, relaxed": reached}


def test_reads_are_nearer_to_the_floor_than_writes():
    results = run(get={"kvmodels-memory": 16, "floor-memory": 10}, insert={"kvmodels-memory": 16, "floor-memory": 10})
    assert found(results, "near the floor") == {"get by key: memory": False, "insert one: memory": True}


def test_the_first_opening_of_a_round_is_shown_and_held_against_no_aim():
    costs = {"kvmodels-sqlite-relaxed": 12.0, "django-sqlite-relaxed": 10.0}
    results = run(open=costs, first_open=costs)
    assert found(results, "ahead of peers") == {"open and read one: Django, sqlite, relaxed": False}
    assert "open and read one, first, ms" in page.page(results)


def test_sizes_and_imports_are_compared_with_peers_but_not_with_the_floor():
    results = run(memory={"kvmodels-memory": 30, "floor-memory": 10, "django-memory": 40})
    results.imports = {"kvmodels": [130.0], "pydantic": [100.0], "Django": [120.0]}
    assert found(results, "near the floor") == {}
    assert found(results, "ahead of peers") == {
        "memory for the records: Django, memory": True,
        "import: Django, memory": False,
    }
    assert found(results, "import") == {"kvmodels against pydantic": True}


def test_many_tasks_have_a_limit():
    results = run()
    results.concurrency = {
        "kvmodels-async-sqlite-commit": {
            "one": [[1.0, 100]],
            "many": [[1.0, 900]],
            "one set": [[1.0, 100]],
            "many sets": [[1.0, 1100]],
        },
        "kvmodels-async-memory": {"one": [[1.0, 100]], "many": [[1.0, 100]]},
    }
    assert found(results, "many tasks") == {
        "kvmodels-async-sqlite-commit, patch": False,
        "kvmodels-async-sqlite-commit, kv.set": True,
        "kvmodels-async-memory, patch": True,
    }


def grown(**growth: float) -> Results:
    """A run in which a get costs so many times as much in the larger store."""
    names = {name.replace("_", "-"): factor for name, factor in growth.items()}
    results = run()
    small: Figures = {row: {name: [[1.0, 10]] for name in names} for row in ("get", "get_by_email")}
    large: Figures = {row: {name: [[factor, 10]] for name, factor in names.items()} for row in small}
    results.growth = {"10000": small, "1000000": large}
    return results


def judged_growth(results: Results) -> dict[str, tuple[bool, str]]:
    return {
        one.what.removeprefix("get: ").split(",")[0]: (one.reached, one.limit)
        for one in aims.findings(results)
        if one.aim == "growth" and one.what.startswith("get: ")
    }


def test_a_get_in_memory_may_grow_as_the_floor_of_the_same_run_and_a_tenth_more():
    shown = {"floor-memory": (True, "shown")}
    for factor, reached in ((1.58, True), (1.67, True), (1.69, False)):
        results = grown(kvmodels_memory=factor, floor_memory=1.58)
        assert judged_growth(results) == {"kvmodels-memory": (reached, "≤ 1.68"), **shown}
    assert judged_growth(grown(kvmodels_memory=1.35, floor_memory=1.2))["kvmodels-memory"] == (False, "≤ 1.3")


def test_growth_on_files_has_its_own_limit_and_growth_in_memory_without_a_floor_has_none():
    results = grown(kvmodels_memory=9.0, kvmodels_sqlite_relaxed=1.9, kvmodels_lmdb_relaxed=2.1)
    assert judged_growth(results) == {
        "kvmodels-memory": (True, "shown"),
        "kvmodels-sqlite-relaxed": (True, "≤ 2"),
        "kvmodels-lmdb-relaxed": (False, "≤ 2"),
    }


def test_a_miss_of_growth_names_the_growth_of_the_floor():
    text = page.page(grown(kvmodels_memory=1.9, floor_memory=1.5))
    assert (
        "costs 1.90 (1.90–1.90) times as much in the larger store | ≤ 1.6 | the floor costs 1.5 times as much" in text
    )
    assert "- **growth**: reached 0, missed 1; 3 more are shown and have no aim." in text


def test_the_page_lists_what_is_missed_and_what_is_excused():
    results = run(
        scan={"kvmodels-sqlite-relaxed": 11.5, "peewee-sqlite-relaxed": 9, "floor-sqlite-relaxed": 10},
        insert={"kvmodels-sqlite-relaxed": 21, "peewee-sqlite-relaxed": 30, "floor-sqlite-relaxed": 10},
    )
    text = page.page(results)
    assert "| insert one: sqlite, relaxed | costs 2.10 (2.10–2.10) times the floor | ≤ 2 |" in text
    assert (
        "the floor is behind as well (the peer costs 0.90 of it); kvmodels costs 1.15 times the floor, allowed 1.2"
        in text
    )
    peers = "- **ahead of peers** (SQLModel, Django, Peewee, Deno KV)"
    assert f"{peers}: ahead 1, allowed 1 because the floor itself is behind, missed 0; 2 comparisons." in text
    assert "- **near the floor**: reached 1, missed 1." in text


def test_a_miss_says_in_words_of_what_it_is_a_ratio():
    results = run(
        scan={"kvmodels-sqlite-commit": 10, "peewee-sqlite-commit": 8},
        memory={"kvmodels-sqlite-commit": 10, "peewee-sqlite-commit": 8},
        open={"kvmodels-sqlite-commit": 10, "peewee-sqlite-commit": 8},
    )
    text = page.page(results)
    assert "| kvmodels is 0.800 (0.800–0.800) times as fast as the peer | ≥ 1 |" in text
    assert "| the peer takes 0.800 (0.800–0.800) times the memory of kvmodels | ≥ 1 |" in text
    assert "| the peer takes 0.800 (0.800–0.800) times as long as kvmodels | ≥ 1 |" in text


def test_what_tinydb_and_zodb_do_better_is_listed_and_no_miss():
    results = run(get={"kvmodels-memory": 10, "tinydb-memory": 5, "zodb-memory": 20})
    text = page.page(results)
    assert found(results, "ahead of peers") == {}
    assert "### Where TinyDB or ZODB is better" in text
    assert "| get by key: TinyDB, memory | kvmodels is 0.500 (0.500–0.500) times as fast as the peer |" in text
    assert "get by key: ZODB" not in text


def test_only_aims_are_counted_and_what_is_shown_beside_them_is_not():
    results = run(get={"kvmodels-memory": 10})
    results.concurrency = {
        "kvmodels-async-sqlite-commit": {"one": [[1.0, 100]], "many": [[1.0, 900]]},
        "kvmodels-async-memory": {"one": [[1.0, 100]], "many": [[1.0, 100]]},
    }
    text = page.page(results)
    assert "- **many tasks**: reached 0, missed 1; 1 more are shown and have no aim." in text
    assert "9.00 (9.00–9.00) times the commits of one task" in text


def test_each_part_says_when_it_was_measured():
    results = run(get={"kvmodels-memory": 10})
    results.growth = {size: {"get": {"kvmodels-memory": [[1e-5, 1], None]}} for size in ("10000", "100000")}
    results.measured = {"rows": {"on": "2026-01-02 03:04 UTC", "commit": "abc"}}
    text = page.page(results)
    assert "| the tables of rows | measured on 2026-01-02 03:04 UTC, of commit abc |" in text
    assert "\nMeasured on 2026-01-02 03:04 UTC, of commit abc. Medians:" in text
    assert "| growth | measured in an earlier run |" in text
    assert "\nMeasured in an earlier run. An insert" in text


def test_the_page_says_what_a_relaxed_write_to_lmdb_gains():
    costs = {"kvmodels-lmdb-relaxed": 10.0, "kvmodels-lmdb-commit": 13.0}
    slower = {"kvmodels-lmdb-relaxed": 10.0, "kvmodels-lmdb-commit": 15.0}
    text = page.page(run(insert=costs, delete=slower))
    assert "a single write of kvmodels is 1.30 to 1.50 times as fast without that sync" in text


def test_the_page_shows_many_tasks_and_growth_where_they_were_measured(tmp_path):
    results = run(get={"kvmodels-memory": 10, "floor-memory": 10, "zodb-memory": 50})
    assert "## Growth" not in page.page(results)
    results.concurrency = {"kvmodels-async-memory": {"one": [[1.0, 100]], "many": [[1.0, 900]]}}
    results.growth = {size: {"get": {"kvmodels-memory": [[1e-5, 1], None]}} for size in ("10000", "100000")}
    written = {path.name: path.read_text("utf-8") for path in page.write(results, tmp_path)}
    assert set(written) == {"benchmarks.md", "bench-memory.svg", "bench-growth.svg"}
    assert "| get by key: kvmodels-memory | 10.0 | 10.0 | 1.00 (1.00–1.00) |" in written["benchmarks.md"]
    assert "get by key, kvmodels-memory, 100,000 records: 10 µs" in written["bench-growth.svg"]
    assert "| kvmodels-async-memory, patch | 100 | 900 | 9.00 (9.00–9.00) |" in written["benchmarks.md"]
    assert "| get by key, gets/s | 100,000 | 100,000 | 20,000 |" in written["benchmarks.md"]
    assert "ZODB" not in written["bench-memory.svg"]
