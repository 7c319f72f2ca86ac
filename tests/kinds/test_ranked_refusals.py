"""Refusals of ranked queries, the texts of their errors, and their plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    IndexNotReadyError,
    InvalidArgumentError,
    InvalidCursorError,
    InvalidValueError,
    KvModel,
    KvModelsError,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    QueryError,
    UnknownFieldError,
    UnknownLookupError,
)
from tests.kinds.lines import END, LineIndex, lines
from tests.kinds.ranked import pairs, ranked, stall_model, stalls


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with lines():
        yield


@pytest.fixture
def db(_registered: None) -> Iterator[Database]:
    with Database("memory://", models=[stall_model()]) as db:
        db[stall_model()].bulk_create(stalls(30))
        yield db


def bench_model(*declared: Any) -> Any:
    class Bench(KvModel, collection="benches"):
        id: PrimaryKey[int]
        at: int = 0
        kind: str = "a"
        open: bool = True

        class Meta:
            indexes: ClassVar = declared

    return Bench


def refused(error: type[KvModelsError], call: Callable[[], object]) -> Any:
    with pytest.raises(error) as caught:
        call()
    assert caught.value.hint
    return caught.value


def test_another_order_is_refused_wherever_it_is_called(db: Database):
    asked = db[stall_model()]
    for call in (
        lambda: asked.nearest("at", 0).order_by("id"),
        lambda: asked.order_by("id").nearest("at", 0),
        lambda: asked.reverse().nearest("at", 0),
    ):
        assert isinstance(refused(NoUsableIndexError, call), QueryError)


def test_bad_origins_distances_and_names_are_refused_at_the_call(db: Database):
    asked = db[stall_model()]
    nearest: Any = asked.nearest
    assert refused(InvalidValueError, lambda: nearest("at", "0")).field == "at"
    assert refused(InvalidValueError, lambda: nearest("at", END + 1)).type == "int"
    for wrong in ("5", True):
        assert refused(InvalidValueError, partial(nearest, "at", 0, within_m=wrong)).field == "within_m"
    for bad in (-1, float("nan"), float("inf"), 10**400):
        assert refused(InvalidArgumentError, partial(nearest, "at", 0, within_m=bad)).argument == "within_m"
    assert refused(InvalidValueError, lambda: nearest(5, 0)).type == "int"
    assert refused(UnknownFieldError, lambda: asked.nearest("att", 0)).suggestion == "at"
    assert refused(UnknownLookupError, lambda: asked.nearest("kind", 0)).lookup == "nearest"
    assert refused(InvalidArgumentError, lambda: asked[:5].nearest("at", 0)).argument == "nearest"
    assert refused(InvalidArgumentError, lambda: asked.values("id").nearest("at", 0)).value == "values()"
    assert refused(InvalidArgumentError, lambda: asked.nearest("at", 0)[:5].filter(open=True)).argument == "filter"
    assert refused(InvalidArgumentError, lambda: asked.nearest("at", 0)[::2]).argument == "step"
    assert refused(InvalidArgumentError, lambda: asked.nearest("at", 0)[-1]).argument == "start"
    assert refused(InvalidValueError, lambda: bool(asked.nearest("at", 0)))


def test_without_an_index_the_line_to_add_is_shown_and_serves_the_query():
    bench = bench_model()
    with Database("memory://", models=[bench]) as db:
        error = refused(NoUsableIndexError, lambda: db[bench].nearest("at", 0))
        assert (error.model, error.order) == ("Bench", ("nearest",))
        assert 'Add LineIndex("at") to the indexes of Bench.Meta' in error.hint
    bench = bench_model(LineIndex("at"))
    with Database("memory://", models=[bench]) as db:
        db[bench].create(id=1, at=4)
        assert pairs(db[bench].nearest("at", 0)) == [(1, 4.0)]


def test_a_group_must_be_fixed_and_a_condition_implied():
    bench = bench_model(
        LineIndex("at", group=("kind",), name="by_kind"), LineIndex("at", where=Q(open=True), name="open_ones")
    )
    with Database("memory://", models=[bench]) as db:
        db[bench].create(id=1, at=4)
        asked = db[bench].nearest("at", 0)
        for query in (asked, asked.filter(kind__gt="a"), asked.filter(id=1), asked.filter(Q(kind="a") | Q(id=1))):
            error = refused(NoUsableIndexError, query.to_list)
            assert "filter(kind=...)" in error.hint
            assert "Q(open=True)" in error.hint
            assert 'add LineIndex("at")' in error.hint
            assert error.candidates == ("by_kind on kind (line)", "open_ones (partial, line)")
        assert refused(NoUsableIndexError, lambda: asked.filter(kind__gt="a").count()).filters == ("kind__gt",)
        assert refused(NoUsableIndexError, asked.page)
        assert asked.filter(kind="a").explain().index == "by_kind"
        assert asked.filter(open=True).explain().index == "open_ones"
        forced = db[bench].nearest("by_kind", 0).filter(open=True)
        assert "using_index()" in refused(NoUsableIndexError, forced.to_list).hint
        assert forced.filter(kind="a").explain().index == "by_kind"
        assert (
            db[bench].using_index("open_ones").nearest("at", 0).filter(open=True, kind="a").explain().index
            == "open_ones"
        )


def test_an_index_of_another_kind_is_no_name_to_rank_by(db: Database):
    bench = bench_model(LineIndex("at"), LineIndex("at", group=("kind",), name="by_kind"))
    with Database("memory://", models=[bench]) as other:
        assert refused(UnknownFieldError, lambda: other[bench].nearest("by_kynd", 0))


def test_an_index_that_is_not_built_is_named_and_serves_after_the_build(tmp_path: Any):
    old, new = bench_model(), bench_model(LineIndex("at"))
    with Database(tmp_path / "benches.db", models=[old]) as db:
        db[old].bulk_create([old(id=n, at=n) for n in range(5)])
    with Database(tmp_path / "benches.db", models=[new]) as db:
        error = refused(IndexNotReadyError, lambda: db[new].nearest("at", 0).to_list())
        assert error.index == "at_line"
        assert "allow_scan" not in error.hint
        db.apply()
        assert pairs(db[new].nearest("at", 3)[:2]) == [(3, 0.0), (2, 1.0)]


def test_a_cursor_serves_its_query_alone(db: Database):
    asked = db[stall_model()].nearest("at", 0)
    cursor = asked.page(3).next_cursor
    assert cursor is not None
    changed = cursor[:-4] + ("AAAA" if cursor[-4:] != "AAAA" else "BBBB")
    for query in (
        lambda: asked.page(3, after=changed),
        lambda: asked.page(3, after="x"),
        lambda: asked.filter(open=True).page(3, after=cursor),
        lambda: db[stall_model()].nearest("at", 1).page(3, after=cursor),
        lambda: db[stall_model()].nearest("at", 0, within_m=9).page(3, after=cursor),
        lambda: db[stall_model()].order_by("id").page(size=3, after=cursor),
        lambda: asked.page(3, after=db[stall_model()].order_by("id").page(size=3).next_cursor),
        lambda: asked.page(3, after=5),  # type: ignore[arg-type]
    ):
        refused(InvalidCursorError, query)
    assert refused(InvalidArgumentError, lambda: asked.page(0)).argument == "size"
    assert refused(InvalidValueError, lambda: asked.page(2.5)).field == "size"  # type: ignore[arg-type]
    assert refused(InvalidArgumentError, lambda: asked[:9].page(3)).argument == "size"
    assert refused(InvalidArgumentError, lambda: asked.page(3, after=cursor, before=cursor)).argument == "before"


def test_the_plan_is_shown(db: Database):
    asked = db[stall_model()].nearest("at", 17, within_m=300)
    assert repr(asked.filter(kind="a")[:5]) == "<RankedQuery[Stall] filtered by kind nearest by at [:5]>"
    plan = asked.filter(kind="a", id__lt=20).explain(analyze=True)
    assert (plan.combine, plan.index, plan.order) == ("ranked", "by_kind", ("distance", "id"))
    assert (plan.bound, plan.residual, plan.estimated_reads) == (("kind = 'a'",), ("id < 20",), None)
    assert plan.analysis is not None
    wanted = ranked(stalls(30), 17, lambda one: one.kind == "a" and one.id < 20, 300)
    assert plan.analysis.results == len(wanted)
    assert str(plan).split("  took")[0] == (
        "Stall: nearest first, in rings of index by_kind\n"
        "  from        17\n"
        "  within      300.0\n"
        "  reads only  kind = 'a'\n"
        "  then tests  id < 20\n"
        "  in order    distance, id\n"
        "  reads       the entries near the origin, and a record for each entry in this order, until enough pass\n"
    )
    nothing = asked.filter(kind="a").filter(kind="b")
    assert str(nothing.explain()) == "Stall: nothing is read, because no record can match"


def test_few_entries_and_records_are_read_for_the_nearest():
    model = stall_model()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=number, at=number * 9 - 9_000) for number in range(2_000)])
        plan = db[model].nearest("at", 100)[:5].explain(analyze=True)
        assert plan.analysis is not None
        assert plan.analysis.records == 5
        assert plan.analysis.rows <= 30
        assert plan.analysis.batches <= 3


async def test_a_for_loop_over_an_asynchronous_ranked_query_is_refused():
    async with AsyncDatabase("memory://", models=[stall_model()]) as db:
        near: Any = db[stall_model()].nearest("at", 0)
        with pytest.raises(InvalidValueError):
            list(near)
