"""Several classes in one collection: every verb, index and query, through the first class and through each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal

import pytest

from kvmodels import (
    AggregateIndex,
    AlreadyExistsError,
    AsyncDatabase,
    Count,
    Database,
    DecodeError,
    DoesNotExist,
    Field,
    Index,
    Indexed,
    IndexNotReadyError,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    StaleObjectError,
    Sum,
    Unique,
    UniqueViolationError,
    UnknownFieldError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.shapes.shapes import Alarm, Circle, Cornered, Event, Level, Polygon, Shape, Spot, Square

MADE: Any = type(KvModel)
"""Makes a class of a name, bases and a namespace."""


@pytest.fixture
def db() -> Iterator[Any]:
    Shape.heard.clear()
    with Database("memory://", models=[Shape, Event]) as opened:
        yield opened
        assert opened.check().ok


@pytest.fixture
def full(db: Any) -> Any:
    db[Circle].create(park="p", number=1, name="Ring", radius=2.0, area=12.5, serial="c1", spot=Spot(x=1))
    db[Square].create(park="p", number=2, name="Tile", side=3.0, corners=4, area=9.0, labels=["a", "b"], note="n")
    db[Square].create(park="p", number=3, name="Dot", side=0.5, corners=4, area=0.25, born=date(2020, 1, 1))
    db[Polygon].create(park="q", number=1, name="Hex", corners=6, sides={1, 2}, labels=["b"], copied="x")
    db[Polygon].create(park="q", number=2, name="Nova", corners=10, kind="star", area=12.5)
    return db


def names(objects: Any) -> list[str]:
    return [one.name for one in objects]


def test_objects_come_back_as_what_they_are(full: Any):
    found = list(full[Shape].all())
    assert [type(one) for one in found] == [Circle, Square, Square, Polygon, Polygon]
    assert names(found) == ["Ring", "Tile", "Dot", "Hex", "Nova"]
    assert full[Shape].get(("q", 2)).kind == "star"
    assert type(full[Shape].get(name="RING")) is Circle


def test_the_repository_of_a_class_finds_its_objects_and_no_others(full: Any):
    assert names(full[Circle].all()) == ["Ring"]
    assert sorted(names(full[Square].all())) == ["Dot", "Tile"]
    assert sorted(names(full[Polygon].all())) == ["Hex", "Nova"]
    assert sorted(names(full[Cornered].all())) == ["Dot", "Hex", "Nova", "Tile"]
    assert [full[model].count() for model in (Shape, Circle, Square, Polygon, Cornered)] == [5, 1, 2, 2, 4]
    assert full[Circle].get(("p", 1)).radius == 2.0
    for model, key in ((Circle, ("p", 2)), (Square, ("q", 1)), (Cornered, ("p", 1))):
        assert full[model].get_or_none(key) is None
        with pytest.raises(model.DoesNotExist):
            full[model].get(key)
        assert full[model].get_or_none(name=full[Shape].get(key).name) is None
        assert full[model].in_bulk([key]) == {}
        with pytest.raises(DoesNotExist):
            full[model].expires_at(key)


def test_queries_of_a_class_use_its_own_indexes(full: Any):
    circles, squares, polygons = full[Circle], full[Square], full[Polygon]
    for query, index, expected in (
        (circles.filter(Circle.radius > 1), "radius", ["Ring"]),
        (circles.filter(radius__range=(0, 1)), "radius", []),
        (squares.filter(side__gt=2), "big", ["Tile"]),
        (squares.order_by("-side").filter(side__gt=1), "big", ["Tile"]),
        (squares.filter(born=date(2020, 1, 1), corners=4), "birthday", ["Dot"]),
        (squares.filter(Square.labels.contains("a")), "labels", ["Tile"]),
        (polygons.filter(Polygon.sides.contains(2)), "sides", ["Hex"]),
        (polygons.filter(copied="x"), "copied", ["Hex"]),
        (polygons.filter(corners__gte=7), "corners", ["Nova"]),
        (full[Cornered].filter(Cornered.labels.contains("b")), "labels", ["Tile", "Hex"]),
        (full[Cornered].filter(corners=4), "corners", ["Tile", "Dot"]),
        (full[Shape].filter(area=12.5), "area", ["Ring", "Nova"]),
        (full[Shape].filter(spot__x=1), "x", ["Ring"]),
        (full[Shape].filter(initial="N"), "initial", ["Nova"]),
        (full[Shape].filter(kind="square"), "kind", ["Tile", "Dot"]),
        (full[Shape].filter(kind__in=["star", "circle"]), "kind", ["Ring", "Nova"]),
    ):
        assert sorted(names(query)) == sorted(expected), query
        assert query.explain().index == index, query
        assert query.count() == len(expected)
        assert query.exists() is bool(expected)
    assert circles.get(serial="c1").name == "Ring"
    assert full[Polygon].filter(area=12.5).explain().index == "area"
    assert names(full[Polygon].filter(area=12.5)) == ["Nova"]


def test_the_class_that_nobody_asks_for_permits_no_scan_of_all_its_records(full: Any):
    squares = full[Square]
    for query in (
        squares.filter(note="n"),
        full[Circle].filter(note="").order_by("radius"),
        full[Cornered].filter(Q(corners=4) | Q(note="n")),
    ):
        with pytest.raises(NoUsableIndexError, match="allow_scan"):
            query.explain()
        assert isinstance(query.allow_scan().to_list(), list)
    for ask in (lambda: squares.get(note="n"), squares.filter(note="n").count, squares.filter(note="n").delete):
        with pytest.raises(NoUsableIndexError, match='Index\\("kind", "note"\\)'):
            ask()
    for query in (
        squares.filter(note="n").allow_scan(),
        squares.filter(note="n").using_index("kind"),
        squares.filter(kind="square", note="n"),
        squares.all(),
        squares.order_by("-park", "-number"),
    ):
        assert query.explain().index == "kind"
        assert "Tile" in names(query)
    assert squares.count() == 2


def test_an_index_that_is_not_ready_is_not_replaced_by_that_on_the_classes():
    def release(area: Any) -> tuple[Any, Any]:
        base = MADE(
            "Figure",
            (KvModel,),
            {"__module__": __name__, "__annotations__": {"id": PrimaryKey[int], "area": area}, "area": 0.0},
            collection="figures",
            discriminator="kind",
        )
        return base, MADE(
            "Disc", (base,), {"__module__": __name__, "__annotations__": {"kind": Literal["disc"]}, "kind": "disc"}
        )

    engine = MemoryEngine()
    old, disc = release(float)
    with Database.from_engine(engine, DatabaseCore([old])) as db:
        db[disc].create(id=1, area=2.0)
        new, indexed = release(Indexed[float])
        later = Database.from_engine(engine, DatabaseCore([new]))
        for query in (later[indexed].filter(area=2.0), later[indexed].filter(area__gt=1)):
            with pytest.raises(IndexNotReadyError) as caught:
                query.to_list()
            assert (caught.value.index, caught.value.model) == ("area", "Disc")
            assert query.allow_scan().count() == 1
        later.build_indexes()
        assert later[indexed].filter(area__gt=1).explain().index == "area"


def test_values_pages_orders_and_slices_of_a_class(full: Any):
    assert list(full[Square].filter(side__gt=1).values("side", "note", "kind")) == [
        {"side": 3.0, "note": "n", "kind": "square"}
    ]
    assert list(full[Shape].order_by("-area").values_list("name", flat=True))[:2] == ["Nova", "Ring"]
    assert set(full[Shape].all().values_list("kind", flat=True)) == {"circle", "square", "polygon", "star"}
    page = full[Cornered].order_by("corners").page(size=2)
    rest = full[Cornered].order_by("corners").page(size=2, after=page.next_cursor)
    assert [one.corners for one in (*page.items, *rest.items)] == [4, 4, 6, 10]
    assert names(full[Square].all()[1:]) == ["Dot"]
    assert full[Square].exclude(name="tile").allow_scan().count() == 1


def test_what_nobody_has_put_in_order_is_in_that_of_the_primary_key_whatever_the_classes(full: Any):
    for park in ("a", "z"):
        for number in range(4):
            name = f"{park}{number}"
            if number % 2:
                full[Square].create(park=park, number=number, name=name, side=1.0, corners=number)
            else:
                kind = "star" if number == 2 else "polygon"
                full[Polygon].create(park=park, number=number, name=name, corners=9 - number, kind=kind)
    for model in (Shape, Cornered, Square, Polygon):
        expected = sorted(one.pk for one in full[Shape].all() if isinstance(one, model))
        repository = full[model]
        assert [one.pk for one in repository.all()] == expected
        assert [one.pk for one in repository.all().reverse()] == expected[::-1]
        assert [one.pk for one in repository.all()[2:5]] == expected[2:5]
        assert list(repository.all().values_list("park", "number")) == expected
        pages = [repository.all().page(size=3)]
        while pages[-1].next_cursor is not None:
            pages.append(repository.all().page(size=3, after=pages[-1].next_cursor))
        assert [one.pk for page in pages for one in page] == expected
        assert repository.count() == len(expected)
        repository.all()[:1].delete()
        assert [one.pk for one in repository.all()] == expected[1:]


def test_counters_of_a_class_and_of_all(full: Any):
    grouped = full[Square].group_by("corners").aggregate(n=Count(), all=Sum("corners"))
    assert list(grouped) == [{"corners": 4, "n": 2, "all": 8}]
    per_kind = full[Shape].group_by("kind").aggregate(n=Count())
    assert {row["kind"]: row["n"] for row in per_kind} == {"circle": 1, "square": 2, "polygon": 1, "star": 1}
    assert full[Shape].filter(area=12.5).count() == 2
    full[Square].remove(("p", 3))
    assert full.check().ok


def test_a_class_does_not_know_the_fields_of_others(full: Any):
    for model, lookups in ((Shape, {"radius": 1}), (Square, {"radius": 1}), (Cornered, {"side": 1})):
        with pytest.raises(UnknownFieldError):
            full[model].filter(**lookups)
    with pytest.raises(UnknownFieldError):
        full[Shape].filter(Circle.radius > 1)
    with pytest.raises(UnknownFieldError):
        full[Shape].values("radius")


def test_every_verb_through_the_class_and_through_the_first_class(db: Any):
    for repository in (db[Circle], db[Shape]):
        one = Circle(park="v", number=1, name="One", radius=1.0, serial="s")
        repository.insert(one)
        one.radius = 2.0
        repository.save(one)
        assert repository.patch(("v", 1), radius=3.0).radius == 3.0
        assert repository.mutate(("v", 1), lambda shape: setattr(shape, "radius", 4.0)).radius == 4.0
        with pytest.raises(StaleObjectError):
            repository.save(one)
        assert repository.refresh(one).radius == 4.0
        assert repository.rename(("v", 1), ("v", 9)).radius == 4.0
        assert db[Circle].filter(radius=4.0).first().pk == ("v", 9)
        assert repository.expires_at(("v", 9)) is None
        repository.save(Circle(park="v", number=9, name="Two", radius=5.0), force=True)
        assert repository.remove(repository.get(("v", 9)))
        assert not repository.remove(("v", 9))
        created, is_new = repository.get_or_create(
            park="v", number=2, defaults={"name": "N", "radius": 1, "kind": "circle"}
        )
        assert (type(created), is_new) == (Circle, True)
        assert repository.get_or_create(park="v", number=2)[1] is False
        repository.bulk_create([Circle(park="v", number=n, name=f"b{n}", radius=n) for n in (3, 4)])
        assert repository.in_bulk([("v", 3), ("v", 4)]).keys() == {("v", 3), ("v", 4)}
        for key in (("v", 2), ("v", 3), ("v", 4)):
            assert repository.remove(key)
        assert db.check().ok
    assert db[Shape].count() == 0


def test_a_unique_field_of_one_class_decides_who_creates_the_record(db: Any):
    rest = {"park": "v", "number": 1, "name": "One", "radius": 1.0}
    made, created = db[Circle].get_or_create(serial="s", defaults=rest)
    assert (type(made), created) == (Circle, True)
    assert db[Circle].get_or_create(serial="s", defaults=rest) == (made, False)
    changed, created = db[Circle].update_or_create(serial="s", defaults={"radius": 2.0})
    assert (changed.radius, created) == (2.0, False)
    with pytest.raises(InvalidArgumentError):
        db[Shape].get_or_create(serial="s", defaults=rest)
    assert db.check().ok


def test_verbs_of_one_class_leave_the_records_of_others_alone(full: Any):
    with pytest.raises(DoesNotExist):
        full[Circle].patch(("p", 2), name="X")
    with pytest.raises(DoesNotExist):
        full[Circle].mutate(("p", 2), lambda one: None)
    with pytest.raises(DoesNotExist):
        full[Circle].rename(("p", 2), ("p", 8))
    assert not full[Circle].remove(("p", 2))
    with pytest.raises(AlreadyExistsError):
        full[Circle].create(park="p", number=2, name="X", radius=1)
    with pytest.raises(UniqueViolationError) as caught:
        full[Circle].create(park="p", number=8, name="TILE", radius=1)
    assert (caught.value.index, caught.value.existing_key) == ("name", ("p", 2))
    with pytest.raises(InvalidValueError):
        full[Circle].insert(Square(park="p", number=9, name="Y", side=1, corners=4))
    assert full[Shape].count() == 5


def test_unique_values_of_a_class_are_unique_among_its_records(full: Any):
    with pytest.raises(UniqueViolationError):
        full[Shape].insert(Circle(park="z", number=1, name="Z", radius=1, serial="c1"))
    with pytest.raises(UniqueViolationError):
        full[Square].create(park="z", number=1, name="Z", side=1, corners=4, born=date(2020, 1, 1))


def test_a_record_may_be_replaced_by_one_of_another_class(full: Any):
    full[Shape].save(Square(park="p", number=1, name="Ring", side=9.0, corners=4), force=True)
    assert full[Circle].count() == 0
    assert full[Circle].filter(radius__gt=0).count() == 0
    assert full[Square].filter(side__gt=8).count() == 1
    assert full.check().ok
    loaded = Circle(park="p", number=1, name="Ring", radius=1)
    with pytest.raises(DoesNotExist):
        full[Shape].refresh(loaded)


def test_an_object_of_a_class_that_only_others_derive_from_is_refused(db: Any):
    for write in (
        lambda one: db[Shape].insert(one),
        lambda one: db[Shape].save(one, force=True),
        lambda one: db[Shape].bulk_create([one]),
        lambda one: db[Circle].insert(one),
    ):
        with pytest.raises(InvalidValueError, match="no discriminator value, so it cannot be stored") as caught:
            write(Shape(park="p", number=1, name="S"))
        assert (caught.value.field, caught.value.type) == ("kind", "Shape")
        assert "Make an object of a class that derives from it: Circle" in str(caught.value)
    with pytest.raises(InvalidValueError, match="not an object of the model"):
        db[Circle].insert(Polygon(park="p", number=1, name="S", corners=5))
    assert db[Shape].count() == 0


def test_the_field_by_which_classes_are_told_is_asked_for_on_every_class(full: Any):
    shape: Any = Shape  # which does not declare it, so type checkers do not know it
    cornered: Any = Cornered
    assert names(full[Shape].filter(shape.kind == "star")) == ["Nova"]
    assert names(full[Cornered].filter(cornered.kind == "polygon")) == ["Hex"]
    assert names(full[Shape].filter(shape.kind.in_(["circle", "star"])).order_by(shape.kind.desc())) == ["Nova", "Ring"]
    assert not hasattr(Shape, "genus")


def test_new_objects_of_the_first_class_are_of_the_class_that_their_kind_says(db: Any):
    assert type(db[Shape].create(kind="star", park="p", number=1, name="S", corners=5)) is Polygon
    for fields in ({}, {"kind": "cube"}, {"kind": ["circle"]}):
        with pytest.raises(InvalidArgumentError) as caught:
            db[Shape].create(park="p", number=2, name="T", **fields)
        assert caught.value.argument == "kind"
    assert caught.value.expected == ("circle", "square", "polygon", "star")
    assert type(db[Cornered].create(kind="square", park="p", number=3, name="Q", corners=4, side=1)) is Square
    with pytest.raises(InvalidArgumentError):
        db[Cornered].create(kind="circle", park="p", number=4, name="C", radius=1)


def test_hooks_signals_and_time_fields_are_those_of_the_class(db: Any):
    heard: list[Any] = []
    db.signals.after_update.connect(lambda new, old: heard.append(type(new).__name__), Shape)
    db.signals.after_remove.connect(lambda one: heard.append(type(one).__name__), Cornered)
    for repository in (db[Shape], db[Circle]):
        repository.insert(Circle(park="h", number=1, name="C", radius=1))
        repository.patch(("h", 1), radius=2)
        repository.remove(("h", 1))
    square = db[Shape].insert(Square(park="h", number=2, name="S", side=1, corners=4))
    assert (square.revision, db[Shape].patch(("h", 2), note="x").revision) == (1, 2)
    polygon = db[Shape].insert(Polygon(park="h", number=3, name="P", corners=5))
    assert polygon.drawn_at.year > 2000
    assert db[Shape].patch(("h", 3), note="y").drawn_at == polygon.drawn_at
    db[Shape].remove(("h", 2))
    assert Shape.heard == [
        ("insert", "Circle"),
        ("update circle", 1.0),
        ("insert", "Circle"),
        ("update circle", 1.0),
        ("insert", "Square"),
        ("insert", "Polygon"),
    ]
    assert heard == ["Circle", "Circle", "Square", "Polygon", "Square"]


def test_the_first_class_may_have_records_and_be_told_by_an_enum(db: Any):
    db[Event].create(id=1, text="calm")
    db[Event].insert(Alarm(id=2))
    db[Event].create(id=3, level=Level.HIGH, loud=False)
    assert [type(one) for one in db[Event].all()] == [Event, Alarm, Alarm]
    assert [one.id for one in db[Alarm].filter(loud=True)] == [2]
    assert db[Event].filter(level=Level.LOW).count() == 1
    assert db[Alarm].count() == 2


def test_a_transaction_sees_all_classes(full: Any):
    with full.transaction() as tx:
        tx[Circle].patch(("p", 1), radius=7.0)
        tx[Shape].insert(Square(park="t", number=1, name="T", side=7.0, corners=4))
        assert tx[Circle].filter(radius=7.0).count() == 1
        assert names(tx[Square].filter(side__gt=6)) == ["T"]
        assert tx[Circle].get_or_none(("t", 1)) is None
    assert names(full[Square].filter(side__gt=6)) == ["T"]


async def test_the_asynchronous_facade_has_the_same_repositories():
    async with AsyncDatabase("memory://", models=[Circle]) as db:
        await db[Circle].create(park="p", number=1, name="C", radius=1.0)
        await db[Shape].insert(Square(park="p", number=2, name="S", side=2.0, corners=4))
        assert [type(one) async for one in db[Shape].all()] == [Circle, Square]
        assert [one.name async for one in db[Square].filter(side__gt=1)] == ["S"]
        assert await db[Circle].get_or_none(("p", 2)) is None
        assert (await db.check()).ok


def test_the_store_is_one_collection_with_plain_documents(full: Any):
    raw = {entry.key: entry.value for entry in full.kv.list(prefix=("shapes",))}
    assert len(raw) == 5
    assert raw["shapes", "p", 1]["kind"] == "circle"
    assert "side" not in raw["shapes", "p", 1]
    assert len(list(full.kv.list(prefix=("shapes_by_radius",)))) == 1
    assert len(list(full.kv.list(prefix=("shapes_by_kind",)))) == 5


def test_many_random_writes_through_all_repositories_leave_every_index_exact():
    seed = 20_260_101
    print(f"seed {seed}")
    rng = random.Random(seed)
    with Database("memory://", models=[Shape]) as db:
        model: dict[tuple[str, int], Any] = {}
        for _ in range(250):
            key = (rng.choice("ab"), rng.randrange(6))
            made: Any = rng.choice(
                [
                    Circle(park=key[0], number=key[1], name=f"{key}", radius=rng.randrange(4)),
                    Square(park=key[0], number=key[1], name=f"{key}", side=rng.randrange(4), corners=4),
                    Polygon(
                        park=key[0], number=key[1], name=f"{key}", corners=rng.randrange(3, 6), sides=frozenset({1})
                    ),
                ]
            )
            if rng.random() < 0.3:
                db[Shape].remove(key)
                model.pop(key, None)
            else:
                model[key] = db[Shape].save(made, force=True)
        assert db.check().ok
        for cls in (Shape, Circle, Square, Polygon, Cornered):
            stored = {one.pk: one.model_dump() for one in db[cls].all()}
            assert stored == {key: one.model_dump() for key, one in model.items() if isinstance(one, cls)}
        for radius in range(4):
            expected = {key for key, one in model.items() if isinstance(one, Circle) and one.radius == radius}
            assert {one.pk for one in db[Circle].filter(radius=radius)} == expected


# --- growing ------------------------------------------------------------------------------------------------------


def family(names: str) -> dict[str, type[Any]]:
    """A first class and classes of these names, all of one collection whatever classes there are."""

    class Base(KvModel, collection="grown", discriminator="kind"):
        id: PrimaryKey[int]
        n: Indexed[int] = Field(default=0)

    made: dict[str, type[Any]] = {"": Base}
    for name in names:
        annotations = {"kind": Literal[name], name: Indexed[int]}
        made[name] = MADE(name, (Base,), {"__annotations__": annotations, "kind": name, "__module__": __name__})
    return made


def test_a_class_that_comes_later_gets_its_indexes_built_and_the_others_keep_theirs():
    engine = MemoryEngine()
    old, new = family("a"), family("ab")
    first = Database.from_engine(engine, DatabaseCore([old[""]]))
    for number in range(3):
        first[old["a"]].create(id=number, a=number)
    second = Database.from_engine(engine, DatabaseCore([new[""]]))
    assert names_of(second[new[""]]) == ["a", "a", "a"]
    reports = second.build_indexes()
    assert [report.index for report in reports] == ["b"] or all(report for report in reports)
    second[new["b"]].create(id=7, b=1)
    assert second[new["b"]].filter(b=1).count() == 1
    assert second[new["a"]].filter(a=1).count() == 1
    assert second.check().ok
    with pytest.raises(DecodeError, match="class that this program does not know") as caught:
        list(first[old[""]].all())
    assert caught.value.field == "kind"


def names_of(repository: Any) -> list[str]:
    return [type(one).__name__ for one in repository.all()]


def test_an_index_that_a_class_gets_later_is_built_of_its_records_only():
    engine = MemoryEngine()

    class One(KvModel, collection="lately", discriminator="kind"):
        id: PrimaryKey[int]

    class Left(One):
        kind: Literal["l"] = "l"
        text: str = "x"

    class Right(One):
        kind: Literal["r"] = "r"

    with_index = Database.from_engine(engine, DatabaseCore([One]))
    with_index[Left].create(id=1, text="t")
    with_index[Right].create(id=2)

    class Two(KvModel, collection="lately", discriminator="kind"):
        id: PrimaryKey[int]

    class Left2(Two):
        kind: Literal["l"] = "l"
        text: Indexed[str] = Field(default="x")

    class Right2(Two):
        kind: Literal["r"] = "r"

    db = Database.from_engine(engine, DatabaseCore([Two]))
    stamp = db[Right2].get(2).versionstamp
    db.build_indexes()
    assert [one.id for one in db[Left2].filter(text="t")] == [1]
    assert db[Right2].get(2).versionstamp == stamp  # nothing was asked of it
    assert db.check().ok


# --- what is refused ----------------------------------------------------------------------------------------------


KEPT: list[type[Any]] = []
"""A class that nobody refers to is one no more, also to the class that it derives from."""


def united(**classes: dict[str, Any]) -> type[Any]:
    class First(KvModel, collection="refused", discriminator="kind"):
        id: PrimaryKey[int]

    for name, namespace in classes.items():
        annotations = {key: value for key, value in namespace.items() if not key.startswith("=")}
        values = {key[1:]: value for key, value in namespace.items() if key.startswith("=")}
        KEPT.append(MADE(name, (First,), {"__annotations__": annotations, "__module__": __name__, **values}))
    return First


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({}, "no class of a collection has records"),
        ({"A": {"kind": Literal["x"]}, "B": {"kind": Literal["y", "x"]}}, "the same discriminator value"),
        ({"A": {"kind": Literal["x"], "more": PrimaryKey[int]}}, "another primary key"),
        ({"A": {"kind": Literal["x"], "n": Indexed[int]}, "B": {"kind": Literal["y"], "n": Unique[int]}}, "two ways"),
        ({"A": {"kind": Literal["x"], "n": Indexed[int]}, "B": {"kind": Literal["y"], "n": str}}, "two types"),
    ],
)
def test_classes_that_cannot_share_a_collection_are_refused_when_the_database_is_opened(classes: Any, message: str):
    with pytest.raises(ModelDefinitionError, match=message):
        Database("memory://", models=[united(**classes)])


def test_a_class_without_its_literal_is_refused_when_it_is_made():
    with pytest.raises(ModelDefinitionError, match="no discriminator value") as caught:
        united(A={"n": int})
    assert caught.value.field == "kind"


@pytest.mark.parametrize("option", [{"collection": "x"}, {"discriminator": "x"}])
def test_what_belongs_to_the_collection_is_refused_in_the_other_classes(option: dict[str, str]):
    namespace = {"__annotations__": {"kind": Literal["odd"]}, "__module__": __name__}
    with pytest.raises(ModelDefinitionError, match="belongs to the first class"):
        MADE("Odd", (Shape,), namespace, **option)
    with pytest.raises(ModelDefinitionError, match="belongs to the first class"):

        class Odd(Shape):
            kind: Literal["odd"] = "odd"

            class Meta:
                schema_version = 2


def test_other_mistakes_with_discriminators_are_refused():
    with pytest.raises(ModelDefinitionError, match="not the name of a field"):

        class Wrong(KvModel, discriminator="not a name"):
            id: PrimaryKey[int]

    with pytest.raises(ModelDefinitionError, match="abstract model has no collection"):

        class Nothing(KvModel, discriminator="kind", abstract=True):
            id: PrimaryKey[int]

    with pytest.raises(ModelDefinitionError, match="two collections"):

        class Both(Shape, Event, abstract=True):
            pass


def test_a_class_may_derive_from_one_that_has_records():
    class Plant(KvModel, discriminator="kind"):
        id: PrimaryKey[int]

    class Tree(Plant):
        kind: Literal["tree"] = "tree"
        height: Indexed[int] = Field(default=1)

    class Oak(Tree):
        kind: Literal["oak"] = "oak"  # type: ignore[assignment]
        acorns: int = 0

    with Database("memory://", models=[Oak]) as db:
        db[Tree].create(id=1)
        db[Oak].create(id=2, height=9)
        assert [type(one) for one in db[Tree].all()] == [Tree, Oak]
        assert [one.id for one in db[Tree].filter(height__gt=3)] == [2]
        assert [one.id for one in db[Oak].filter(height__gt=0)] == [2]
        assert type(db[Tree].create(id=3, kind="oak")) is Oak
        assert type(db[Tree].create(id=4)) is Tree
        assert db.check().ok


def test_an_index_on_the_discriminator_may_be_declared():
    class Item(KvModel, discriminator="kind"):
        id: PrimaryKey[int]
        kind: str
        price: int = 0

        class Meta:
            indexes = (Index("kind", "-price", name="kind"),)

    class Book(Item):
        kind: Literal["book"] = "book"

    class Disc(Item):
        kind: Annotated[Literal["disc"], "plays"] = "disc"

    with Database("memory://", models=[Item]) as db:
        for number in range(4):
            db[Item].create(kind=("book", "disc")[number % 2], id=number, price=number)
        assert [one.id for one in db[Book].order_by("-price")] == [2, 0]
        assert [one.id for one in db[Item].filter(kind="disc").order_by("-price")] == [3, 1]
        assert list(db.check().findings) == []


@pytest.mark.parametrize("index", [Index("kind", "-price"), AggregateIndex("kind", sums=("price",))])
def test_an_index_on_a_discriminator_that_the_first_class_does_not_declare_says_how_to_declare_it(index: Any):
    annotations = {"id": PrimaryKey[int], "price": int}
    meta = type("Meta", (), {"__qualname__": "Item.Meta", "indexes": (index,)})
    body = {"__module__": __name__, "__qualname__": "Item", "__annotations__": annotations, "Meta": meta}
    with pytest.raises(ModelDefinitionError, match="names the discriminator") as caught:
        MADE("Item", (KvModel,), body, discriminator="kind")
    assert caught.value.field == "kind"
    assert str(caught.value.hint).startswith("Declare kind: str in it")
    body = {**body, "__annotations__": {**annotations, "kind": str}}
    item = MADE("Item", (KvModel,), body, discriminator="kind")
    assert issubclass(item, KvModel)
