"""Numbers, sums, extremes and averages, of everything and of groups: against Python, from every source, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from itertools import product
from typing import Annotated, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    Avg,
    Count,
    Database,
    Field,
    Index,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    Max,
    Min,
    MultiIndexed,
    NoUsableIndexError,
    OperationTooLargeError,
    PrimaryKey,
    Q,
    Sum,
    UnknownFieldError,
    UnknownLookupError,
)
from kvmodels.query.aggregates import Extreme, Summing
from tests.query.engines import WatchedEngine, watched


class Kind(Enum):
    SMALL = "s"
    LARGE = "l"


class Level(IntEnum):
    LOW = 2
    HIGH = 10


class Where(BaseModel):
    zone: str
    floor: int | None = None


class Sale(KvModel, collection="sales"):
    """Every kind of value that can be summed or compared, with counters, ordered indexes, and fields without any."""

    id: PrimaryKey[int]
    country: Indexed[str]
    kind: Kind | None = None
    amount: Indexed[int]
    tip: Indexed[int | None] = Field(default=None)
    price: Decimal | None = None
    rate: float = 0.0
    stay: timedelta = timedelta(0)
    level: Level = Level.LOW
    name: Annotated[str, Indexed(key=str.casefold)] = ""
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    where: Where | None = None
    notes: dict[str, int] | None = None

    class Meta:
        indexes = (
            Index("country", "amount", include=("tip", "rate"), name="country_amount"),
            Index("country", "kind", "-tip", name="compound"),
            Index("where.zone"),
            AggregateIndex("country", sums=("amount", "tip", "stay"), name="per_country"),
            AggregateIndex("country", "kind", sums=("amount",), name="per_kind"),
            AggregateIndex("tags", sums=("tip",), name="per_tag"),
            AggregateIndex("name", name="per_name"),
            AggregateIndex("kind", sums=("amount",), where=Q(amount__gt=0), name="positive"),
            AggregateIndex("where.zone", name="per_zone"),
        )


LARGE = 2**40
ROW = st.fixed_dictionaries(
    {
        "country": st.sampled_from(["", "CH", "CH\0", "IT"]),
        "kind": st.none() | st.sampled_from(Kind),
        "amount": st.integers(-3, 3) | st.sampled_from([LARGE, -LARGE, 2**63 - 1]),
        "tip": st.none() | st.integers(-2, 2) | st.sampled_from([2**32, -(2**33)]),
        "price": st.none() | st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**30)),
        "rate": st.floats(allow_nan=False, allow_infinity=False),
        "stay": st.timedeltas(timedelta(days=-9), timedelta(days=9)),
        "level": st.sampled_from(Level),
        "name": st.sampled_from(["rome", "Rome", "oslo"]),
        "tags": st.lists(st.sampled_from("abc"), max_size=3),
        "where": st.none() | st.builds(Where, zone=st.sampled_from("xy"), floor=st.none() | st.integers(0, 2)),
        "notes": st.none() | st.just({"a": 1}),
    }
)

Test = Callable[[Sale], bool]
FILTERS: list[tuple[dict[str, Any], Test]] = [
    ({}, lambda sale: True),
    ({"country": "CH"}, lambda sale: sale.country == "CH"),
    ({"country__in": ["CH", "IT", "??"]}, lambda sale: sale.country in ("CH", "IT")),
    ({"country__gt": "CH"}, lambda sale: sale.country > "CH"),
    ({"country__startswith": "CH"}, lambda sale: sale.country.startswith("CH")),
    ({"country": "IT", "kind": Kind.SMALL}, lambda sale: sale.country == "IT" and sale.kind is Kind.SMALL),
    ({"country": "IT", "kind": None}, lambda sale: sale.country == "IT" and sale.kind is None),
    ({"country": "CH", "kind__isnull": False}, lambda sale: sale.country == "CH" and sale.kind is not None),
    ({"amount__gt": 0}, lambda sale: sale.amount > 0),
    ({"amount__gt": 0, "kind": Kind.LARGE}, lambda sale: sale.amount > 0 and sale.kind is Kind.LARGE),
    ({"country": "CH", "amount__gt": 1}, lambda sale: sale.country == "CH" and sale.amount > 1),
    ({"tags__contains": "a"}, lambda sale: "a" in sale.tags),
    ({"tags__contains_any": ["a", "b"]}, lambda sale: "a" in sale.tags or "b" in sale.tags),
    ({"name": "ROME"}, lambda sale: sale.name.casefold() == "rome"),
    ({"where__zone": "x"}, lambda sale: sale.where is not None and sale.where.zone == "x"),
    ({"where__zone": None}, lambda sale: sale.where is None),
    ({"country": "CH", "country__ne": "CH"}, lambda sale: False),
    ({"level": Level.HIGH}, lambda sale: sale.level is Level.HIGH),
]


def mean(values: Sequence[Any]) -> Any:
    """The average as it is documented."""
    if isinstance(values[0], timedelta):
        return timedelta(microseconds=round(Fraction(sum(v // timedelta(microseconds=1) for v in values), len(values))))
    if isinstance(values[0], Decimal):
        return None  # compared by itself below
    if isinstance(values[0], float):
        return float(sum(map(Fraction, values)) / len(values))
    return sum(values) / len(values)


def sum_of(values: Sequence[Any]) -> Any:
    if isinstance(values[0], float):
        exact = sum(map(Fraction, values))
        try:
            return float(exact)
        except OverflowError:
            return math.inf if exact > 0 else -math.inf
    if isinstance(values[0], Decimal):
        return sum(map(Fraction, values))
    return sum(values, type(values[0])(0))


FUNCTIONS: list[tuple[Any, str, Callable[[Sequence[Any]], Any]]] = [
    (Count(), "", len),
    (Count("tip"), "tip", len),
    (Count("amount"), "amount", len),
    (Count("notes"), "notes", len),
    (Sum("amount"), "amount", sum_of),
    (Sum("tip"), "tip", sum_of),
    (Sum("stay"), "stay", sum_of),
    (Sum("rate"), "rate", sum_of),
    (Sum("price"), "price", sum_of),
    (Sum("level"), "level", lambda values: sum(int(value) for value in values)),
    (Sum("where.floor"), "where.floor", sum_of),
    (Avg("amount"), "amount", mean),
    (Avg("tip"), "tip", mean),
    (Avg("stay"), "stay", mean),
    (Min("amount"), "amount", min),
    (Max("amount"), "amount", max),
    (Min("tip"), "tip", min),
    (Max("tip"), "tip", max),
    (Max("price"), "price", max),
    (Min("stay"), "stay", min),
    (Min("kind"), "kind", lambda values: min(values, key=lambda kind: kind.value)),
    (Max("name"), "name", lambda values: max(value.casefold() for value in values)),
    (Min("where.zone"), "where.zone", min),
    (Max("pk"), "id", max),
]


def attribute(sale: Sale, name: str) -> Any:
    value: Any = sale
    for part in name.split(".") if name else ():
        value = getattr(value, part, None)
    return value


def expected_of(sales: Iterable[Sale], position: int) -> Any:
    function, name, compute = FUNCTIONS[position]
    values = [value for sale in sales if (value := attribute(sale, name)) is not None]
    return compute(values) if values or isinstance(function, Count) else None


def equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, Fraction):
        return isinstance(found, Decimal) and Fraction(found) == expected
    return type(found) is type(expected) and bool(found == expected)


def filled(rows: list[dict[str, Any]], url: str = "memory://") -> tuple[Any, list[Sale]]:
    db = Database(url, models=[Sale])
    sales = [Sale(id=number, **fields) for number, fields in enumerate(rows)]
    db[Sale].bulk_create(sales)
    return db[Sale], sales


URLS = st.sampled_from(["memory://", "memory://", "sqlite://:memory:"])
positions = st.lists(st.integers(0, len(FUNCTIONS) - 1), min_size=1, max_size=4, unique=True)


@given(data=st.data())
def test_results_equal_those_of_python_whatever_their_source(data: st.DataObject):
    repository, sales = filled(data.draw(st.lists(ROW, max_size=15)), data.draw(URLS))
    for sale in data.draw(st.lists(st.sampled_from(sales), max_size=4, unique_by=id)) if sales else []:
        repository.remove(sale)
        sales.remove(sale)
    for _ in range(4):
        lookups, test = data.draw(st.sampled_from(FILTERS))
        chosen = data.draw(positions)
        query = repository.filter(**lookups).allow_scan()
        kept = [sale for sale in sales if test(sale)]
        if data.draw(st.booleans()):
            start, stop = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 15))
            query, kept = query.order_by("pk")[start:stop], kept[start:stop]
        functions = {f"f{position}": FUNCTIONS[position][0] for position in chosen}
        found = query.aggregate(**functions)
        for position in chosen:
            expected = expected_of(kept, position)
            assert equal(found[f"f{position}"], expected), (FUNCTIONS[position][0], lookups, found, expected)
        assert query.count() == len(kept)
        assert query.exists() is bool(kept)


GROUPS: list[tuple[tuple[str, ...], Callable[[Sale], Iterable[tuple[Any, ...]]]]] = [
    (("country",), lambda sale: [(sale.country,)]),
    (("kind",), lambda sale: [(sale.kind,)]),
    (("country", "kind"), lambda sale: [(sale.country, sale.kind)]),
    (("kind", "country"), lambda sale: [(sale.kind, sale.country)]),
    (("name",), lambda sale: [(sale.name.casefold(),)]),
    (("tags",), lambda sale: [(tag,) for tag in set(sale.tags)]),
    (("country", "tags"), lambda sale: product([sale.country], set(sale.tags))),
    (("where__zone",), lambda sale: [(sale.where and sale.where.zone,)]),
    (("tip",), lambda sale: [(sale.tip,)]),
    (("level", "amount"), lambda sale: [(sale.level, sale.amount)]),
]


def rank(value: Any) -> tuple[bool, Any]:
    return (value is not None, value.value if isinstance(value, Enum) else value)


@given(data=st.data())
def test_groups_equal_those_of_python_whatever_their_source(data: st.DataObject):
    repository, sales = filled(data.draw(st.lists(ROW, max_size=15)), data.draw(URLS))
    for sale in data.draw(st.lists(st.sampled_from(sales), max_size=4, unique_by=id)) if sales else []:
        repository.remove(sale)
        sales.remove(sale)
    for _ in range(4):
        lookups, test = data.draw(st.sampled_from(FILTERS))
        fields, groups_of = data.draw(st.sampled_from(GROUPS))
        chosen = data.draw(positions)
        reverse = data.draw(st.booleans())
        query = repository.filter(**lookups).allow_scan().sort_in_memory(limit=1_000)
        grouped = (query.reverse() if reverse else query).group_by(*fields)
        rows = grouped.aggregate(**{f"f{position}": FUNCTIONS[position][0] for position in chosen})
        groups: dict[tuple[Any, ...], list[Sale]] = {}
        for sale in sales:
            for group in groups_of(sale) if test(sale) else ():
                groups.setdefault(group, []).append(sale)
        ordered = sorted(groups, key=lambda group: tuple(map(rank, group)), reverse=reverse)
        found = rows.to_list()
        assert [tuple(row[field] for field in fields) for row in found] == ordered, rows.explain()
        for row, group in zip(found, ordered, strict=True):
            for position in chosen:
                expected = expected_of(groups[group], position)
                assert equal(row[f"f{position}"], expected), (FUNCTIONS[position][0], lookups, row, expected)
        assert list(rows) == found


# --- sources ------------------------------------------------------------------------------------------------------


def sale_rows(count: int) -> list[Sale]:
    return [
        Sale(
            id=number,
            country=("CH", "FR", "IT", "DE")[number % 4],
            kind=(None, Kind.SMALL, Kind.LARGE)[number % 3],
            amount=number,
            tip=None if number % 5 == 0 else number % 11,
            stay=timedelta(hours=number % 7),
            name=f"n{number % 6}",
            tags=["a", "b"][: number % 3],
            where=Where(zone="xyz"[number % 3]),
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def store() -> tuple[Any, WatchedEngine]:
    db, engine = watched([Sale])
    for start in range(0, 2_000, 500):
        db[Sale].bulk_create(sale_rows(2_000)[start : start + 500])
    return db[Sale], engine


Ask = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("ask", "reads", "rows"),
    [
        (lambda q: q.filter(country="CH").count(), 1, 1),
        (lambda q: q.filter(country="CH")[100:200].count(), 1, 1),
        (lambda q: q.filter(country="nowhere").count(), 1, 0),
        (lambda q: q.filter(country="CH", kind=None).count(), 1, 1),
        (lambda q: q.filter(country__in=["CH", "IT"]).count(), 1, 2),
        (lambda q: q.filter(tags__contains="a").count(), 1, 1),
        (lambda q: q.filter(name="N3").count(), 1, 1),
        (lambda q: q.filter(amount__gt=0, kind=Kind.LARGE).count(), 1, 1),
        (lambda q: q.filter(country="CH").aggregate(Count(), Sum("amount"), Avg("tip"), Sum("stay")), 1, 6),
        (lambda q: q.filter(country="CH").aggregate(Min("amount")), 1, 1),
        (lambda q: q.filter(country="CH").aggregate(Max("amount")), 1, 1),
        (lambda q: q.aggregate(Min("tip")), 1, 2),
        (lambda q: q.aggregate(Max("tip")), 1, 2),
        (lambda q: q.aggregate(Min("pk"), Max("pk")), 2, 2),
        (lambda q: q.filter(country="CH").aggregate(Count(), Max("amount")), 2, 2),
        (lambda q: q.filter(country="CH", kind=Kind.SMALL).aggregate(Max("tip"), Sum("amount")), 2, 4),
        (lambda q: q.group_by("country").aggregate(Count()).to_list(), 1, 32),
        (lambda q: q.group_by("tags").aggregate(Count("pk"), Sum("tip")).to_list(), 1, 8),
        (lambda q: q.filter(country="IT").group_by("kind").aggregate(Sum("amount")).to_list(), 1, 9),
        (lambda q: q.filter(country="CH").explain_aggregate(Count()), 0, 0),
        (lambda q: q.group_by("country").aggregate(Count()).explain(), 0, 0),
        (lambda q: repr(q.group_by("country").aggregate(Count())), 0, 0),
    ],
)
def test_what_counters_and_ends_of_indexes_read(store: tuple[Any, WatchedEngine], ask: Ask, reads: int, rows: int):
    sales, engine = store
    engine.meter.reset()
    ask(sales)
    assert engine.meter.reads == reads
    assert engine.meter.rows + engine.meter.followed <= rows


def test_a_pass_takes_what_entries_hold_from_the_entries(store: tuple[Any, WatchedEngine]):
    sales, engine = store
    engine.meter.reset()
    found = sales.filter(country="CH", amount__lt=1_000).aggregate(Count(), Sum("rate"), Max("tip"))
    assert found == {"count": 250, "rate__sum": 0.0, "tip__max": 10}
    assert engine.meter.followed == 0
    engine.meter.reset()
    assert sum(row["count"] for row in sales.group_by("amount").aggregate(Count())) == 2_000
    assert engine.meter.followed == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda q, analyze: q.filter(country="CH").explain_aggregate(Count(), analyze=analyze),
        lambda q, analyze: q.filter(country="CH").explain_aggregate(Count(), Max("amount"), analyze=analyze),
        lambda q, analyze: q.filter(country="CH").explain_aggregate(n=Count(), most=Max("rate"), analyze=analyze),
        lambda q, analyze: q.explain_aggregate(Max("pk"), analyze=analyze),
        lambda q, analyze: q.allow_scan().explain_aggregate(Max("rate"), analyze=analyze),
        lambda q, analyze: q.group_by("country").aggregate(Count()).explain(analyze=analyze),
        lambda q, analyze: q.group_by("country").aggregate(Max("rate")).explain(analyze=analyze),
        lambda q, analyze: (
            q.allow_scan().sort_in_memory().group_by("level").aggregate(Count()).explain(analyze=analyze)
        ),
    ],
)
def test_analysis_counts_what_the_engine_gave(store: tuple[Any, WatchedEngine], ask: Any):
    sales, engine = store
    engine.meter.reset()
    plan = ask(sales, False)
    assert (plan.analysis, engine.meter.reads) == (None, 0)
    analyzed = ask(sales, True)
    assert analyzed.analysis.batches == engine.meter.reads > 0
    assert analyzed.analysis.reads == engine.meter.rows + engine.meter.followed
    assert str(analyzed).splitlines()[:-1] == str(plan).splitlines()
    assert str(analyzed).splitlines()[-1] == f"  took        {analyzed.analysis}"
    with pytest.raises(InvalidArgumentError):
        ask(sales, "yes")


def test_plans_say_where_results_come_from(store: tuple[Any, WatchedEngine]):
    sales, _ = store
    swiss = sales.filter(country="CH")
    assert str(swiss.explain_aggregate(Count(), n=Sum("tip"))) == "Sale: counters of index per_country for count, n"
    both = swiss.explain_aggregate(Count(), Max("amount"))
    assert str(both) == (
        "Sale: counters of index per_country for count\n  the end of index country_amount for amount__max"
    )
    passed = swiss.explain_aggregate(Count(), Max("rate"))
    assert str(passed).splitlines()[0] == "Sale: one pass for count, rate__max"
    assert passed.rows is not None
    assert passed.rows.plan.index == "country_amount"
    assert str(sales.explain_aggregate(Max("pk"))) == "Sale: the end of the primary key for pk__max"
    groups = sales.group_by("country")
    assert str(groups.aggregate(Count()).explain()) == "Sale: counters of index per_country, grouped by country"
    assert groups.aggregate(Max("rate")).explain().source == "index"
    assert groups.aggregate(Max("rate")).explain().index in ("country", "country_amount", "compound")
    held = sales.sort_in_memory(limit=9).group_by("level").aggregate(Count()).explain()
    assert (held.source, held.limit) == ("memory", 9)
    assert "holds up to 9 groups in memory" in str(held)
    by_kind = sales.sort_in_memory(limit=9).group_by("kind").aggregate(Sum("amount")).explain()
    assert (by_kind.source, by_kind.index, by_kind.limit) == ("counters", "per_kind", 9)


def test_groups_are_streamed_and_may_be_read_again(store: tuple[Any, WatchedEngine]):
    sales, engine = store
    rows = sales.group_by("amount").aggregate(Count())
    engine.meter.reset()
    first = next(iter(rows))
    assert first == {"amount": 0, "count": 1}
    assert engine.meter.rows <= 501
    assert len(list(rows)) == len(rows.to_list()) == 2_000


def test_groups_by_other_orders(store: tuple[Any, WatchedEngine]):
    sales, _ = store
    countries = [row["country"] for row in sales.order_by("-country").group_by("country").aggregate(Count())]
    assert countries == ["IT", "FR", "DE", "CH"]
    pairs = sales.order_by("-country").sort_in_memory(50).group_by("kind", "country").aggregate(Count()).to_list()
    assert [(row["country"], row["kind"]) for row in pairs][:4] == [
        ("IT", None),
        ("IT", Kind.LARGE),
        ("IT", Kind.SMALL),
        ("FR", None),
    ]
    assert list(pairs[0]) == ["kind", "country", "count"]


@pytest.mark.fast_kinds
def test_an_index_that_is_named_is_the_only_source(store: tuple[Any, WatchedEngine]):
    sales, engine = store
    engine.meter.reset()
    assert sales.filter(country="CH").using_index("country").count() == 500
    assert engine.meter.counted == 500
    assert sales.filter(country="CH").using_index("per_country").count() == 500


def test_counters_follow_every_change():
    repository, _ = filled([])
    for sale in sale_rows(6):
        repository.insert(sale)
    repository.patch(0, country="IT", tip=5)
    repository.patch(2, tip=None, amount=-7)
    repository.remove(3)
    for country in ("CH", "IT", "FR", "DE"):
        asked = repository.filter(country=country)
        objects = asked.to_list()
        tips = [sale.tip for sale in objects if sale.tip is not None]
        assert asked.aggregate(Count(), Count("tip"), Sum("tip"), Sum("amount")) == {
            "count": len(objects),
            "tip__count": len(tips),
            "tip__sum": sum(tips) if tips else None,
            "amount__sum": sum(sale.amount for sale in objects) if objects else None,
        }
    assert "DE" not in [row["country"] for row in repository.group_by("country").aggregate(Count())]


# --- exactness ----------------------------------------------------------------------------------------------------


def summed(kind: str, values: Iterable[Any], *, mean: bool = False) -> Any:
    summing = Summing(kind, mean=mean)
    for value in values:
        summing.add(value)
    return summing.result()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_float_sums_are_those_of_fsum_in_any_order(values: list[float]):
    try:
        expected = math.fsum(values)
    except OverflowError:
        expected = sum_of(values)
    assert summed("float", values) == summed("float", reversed(values)) == expected
    assert summed("float", values, mean=True) == float(sum(map(Fraction, values)) / len(values))


def test_sums_beyond_the_range_and_of_special_values():
    assert summed("float", [1e308, 1e308, -1e308]) == 1e308
    assert summed("float", [1e308] * 3) == math.inf
    assert summed("float", [-1e308] * 3) == -math.inf
    assert summed("float", [1.0, math.inf]) == math.inf
    assert math.isnan(summed("float", [math.inf, -math.inf]))
    assert math.isnan(summed("float", [math.nan, 1.0], mean=True))
    assert summed("float", [1e308, 1e308], mean=True) == 1e308
    assert summed("float", [None]) is None


def test_ints_and_decimals_never_become_floats():
    assert summed("int", [2**70, 1, -(2**70)]) == 1
    assert summed("int", [2**1100, 2**1100]) == 2**1101
    assert summed("decimal", [Decimal("1E+50"), Decimal("1E-50"), Decimal("-1E+50")]) == Decimal("1E-50")
    assert summed("decimal", [Decimal("0.1")] * 3) == Decimal("0.3")
    assert summed("decimal", [Decimal(1), Decimal(0), Decimal(0)], mean=True) == Decimal("0." + "3" * 28)
    assert summed("int", [1, 2], mean=True) == 1.5
    with pytest.raises(InvalidValueError):
        summed("int", [2**2000], mean=True)


def test_durations():
    assert summed("timedelta", [timedelta(microseconds=1), timedelta(days=3)]) == timedelta(days=3, microseconds=1)
    assert summed("timedelta", [timedelta(microseconds=1), timedelta(0)], mean=True) == timedelta(0)
    assert summed("timedelta", [timedelta.max, timedelta.max], mean=True) == timedelta.max
    with pytest.raises(InvalidValueError):
        summed("timedelta", [timedelta.max, timedelta.max])


def test_values_without_an_order_are_no_extremes():
    class Loose(KvModel, collection="loose"):
        id: PrimaryKey[int]
        real: float
        day: date | None = None

    db = Database("memory://", models=[Loose])
    db[Loose].bulk_create([Loose(id=1, real=math.nan), Loose(id=2, real=3.0), Loose(id=3, real=math.nan)])
    assert db[Loose].aggregate(Min("real"), Max("real"), Max("day")) == {
        "real__min": 3.0,
        "real__max": 3.0,
        "day__max": None,
    }
    rows = db[Loose].sort_in_memory(5).group_by("real").aggregate(Count()).to_list()
    assert [(repr(row["real"]), row["count"]) for row in rows] == [("3.0", 1), ("nan", 2)]
    assert Extreme(lambda value: b"", greatest=True).result() is None


def test_of_nothing_everything_is_none_but_a_count():
    repository, _ = filled([])
    asked = [Count(), Count("tip"), Sum("amount"), Min("amount"), Max("rate"), Avg("price")]
    nothing = [0, 0, None, None, None, None]
    for query in (repository, repository.filter(country="CH"), repository.filter(country__in=[])):
        assert list(query.aggregate(*asked).values()) == nothing
        assert query.aggregate(*asked[:3]) == {"count": 0, "tip__count": 0, "amount__sum": None}
        assert query.group_by("country").aggregate(Count()).to_list() == []


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("functions", "error"),
    [
        ([], InvalidArgumentError),
        ([Count(), Count()], InvalidArgumentError),
        ([Count], InvalidValueError),
        (["count"], InvalidValueError),
        ([None], InvalidValueError),
        ([Sum("country")], UnknownLookupError),
        ([Avg("kind")], UnknownLookupError),
        ([Sum("tags")], UnknownLookupError),
        ([Min("tags")], UnknownLookupError),
        ([Max("notes")], UnknownLookupError),
        ([Sum("where")], UnknownLookupError),
        ([Sum("amont")], UnknownFieldError),
        ([Count("where.zon")], UnknownFieldError),
        ([Sum(cast("Any", 5))], InvalidValueError),
    ],
)
def test_functions_that_make_no_sense_are_refused_before_anything_is_read(functions: list[Any], error: type[Exception]):
    repository, _ = filled([])
    for ask in (repository.aggregate, repository.explain_aggregate, repository.group_by("country").aggregate):
        with pytest.raises(error):
            ask(*functions)


def test_groups_that_make_no_sense_are_refused_before_anything_is_read():
    repository, _ = filled([])
    for fields in ((), ("country", "country"), ("country", "tags", "tags")):
        with pytest.raises(InvalidArgumentError):
            repository.group_by(*fields)
    with pytest.raises(UnknownLookupError):
        repository.group_by("notes")
    with pytest.raises(UnknownFieldError):
        repository.group_by("county")
    with pytest.raises(InvalidArgumentError):
        repository.all()[:3].group_by("country")
    with pytest.raises(InvalidArgumentError):
        repository.order_by("amount").group_by("country")
    with pytest.raises(InvalidArgumentError):
        repository.group_by("country").aggregate(country=Count())
    with pytest.raises(InvalidArgumentError):
        repository.values("country").distinct().aggregate(Count())
    for lazy in (repository.group_by("country"), repository.group_by("country").aggregate(Count())):
        with pytest.raises(InvalidValueError):
            bool(lazy)


def test_groups_without_an_index_are_refused_with_the_line_to_add():
    repository, _ = filled([])
    with pytest.raises(NoUsableIndexError) as refused:
        repository.group_by("level").aggregate(Sum("amount")).to_list()
    assert 'AggregateIndex("level", sums=("amount",))' in str(refused.value.hint)
    assert "sort_in_memory" in str(refused.value.hint)
    with pytest.raises(NoUsableIndexError):
        repository.filter(level=Level.LOW).aggregate(Count())
    assert repository.filter(level=Level.LOW).allow_scan().aggregate(Count()) == {"count": 0}


def test_no_more_groups_are_held_than_permitted():
    repository, _ = filled([{"country": "CH", "amount": number, "level": Level.LOW} for number in range(10)])
    rows = repository.sort_in_memory(limit=9).group_by("level", "amount").aggregate(Count())
    with pytest.raises(OperationTooLargeError) as refused:
        rows.to_list()
    assert (refused.value.limit, refused.value.maximum) == ("sort_in_memory", 9)
    assert len(repository.sort_in_memory(limit=10).group_by("level", "amount").aggregate(Count()).to_list()) == 10


# --- the asynchronous twin ----------------------------------------------------------------------------------------


async def test_the_asynchronous_twin_gives_the_same_results():
    ours, _ = filled([])
    ours.bulk_create(sale_rows(20))
    async with AsyncDatabase("memory://", models=[Sale]) as db:
        await db[Sale].bulk_create(sale_rows(20))
        functions = (Count(), Sum("amount"), Max("rate"))
        assert await db[Sale].aggregate(*functions) == ours.aggregate(*functions)
        assert str(await db[Sale].explain_aggregate(*functions)) == str(ours.explain_aggregate(*functions))
        assert await db[Sale].filter(country="CH").count() == 5
        groups = db[Sale].group_by("country").aggregate(*functions)
        expected = ours.group_by("country").aggregate(*functions).to_list()
        assert await groups.to_list() == [row async for row in groups] == expected
        assert (await groups.explain()).source == "index"
        assert repr(groups) == "<AsyncGroups[Sale] grouped by country for count, amount__sum, rate__max>"
        with pytest.raises(InvalidValueError):
            iter(groups)  # type: ignore[call-overload]
