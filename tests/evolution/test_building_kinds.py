"""Every kind of index built online: beside four writers, by two builders that are killed and carried on."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

from kvmodels import (
    Circle,
    Database,
    Field,
    GeoPoint,
    IndexNotReadyError,
    KvModel,
    OperationTooLargeError,
    PrimaryKey,
    UniqueViolationError,
)
from kvmodels.query.aggregates import Count, Sum
from kvmodels.schema.declare.declarations import AggregateIndex, Index, UniqueConstraint
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.declare.markers import Indexed, MultiIndexed
from tests.evolution.residents import FirstResident, Resident, key_of, resident
from tests.evolution.test_online_build import (
    BUILDERS,
    answer,
    build_beside_writers,
    crowd,
    nobody_is_left_behind,
    ready,
    start,
)
from tests.oracle import audit, read_store, spec_of

__all__ = ["nobody_is_left_behind"]

SPEC = spec_of(Resident)


def fill(path: Path, records: int, seed: int) -> None:
    """Residents of the release before."""
    rng = random.Random(seed)
    with Database(path, models=[FirstResident], durability="relaxed") as db:
        first = []
        for n in range(records):
            park, number = key_of(n)
            first.append(FirstResident(park=park, number=number, **resident(n, rng)))
        db[FirstResident].bulk_create(first)


def answers_are_right(residents: Any) -> None:
    """Queries through the new indexes against all records."""
    everybody = residents.all().to_list()

    def asked(query: Any, holds: Any) -> None:
        plan = query.explain()
        assert plan.index is not None
        assert not plan.full_scan
        assert sorted(one.pk for one in query) == [one.pk for one in everybody if holds(one)]

    asked(residents.filter(name="ADA LI"), lambda one: one.name.casefold() == "ada li")
    asked(residents.filter(initial="A"), lambda one: one.name[0] in "Aa")
    asked(residents.filter(word__contains="li"), lambda one: "li" in one.name.casefold().split())
    asked(residents.filter(tags__contains="a"), lambda one: "a" in one.tags)
    asked(residents.filter(meals__food__contains="hay"), lambda one: any(meal.food == "hay" for meal in one.meals))
    asked(residents.filter(habitat__zone="rock"), lambda one: one.habitat is not None and one.habitat.zone == "rock")
    asked(residents.filter(species="lynx", age__gt=3), lambda one: one.species == "lynx" and one.age > 3)
    asked(residents.filter(nick="n"), lambda one: one.nick == "n")
    asked(
        residents.filter(species="ibex", age__gt=0, visits__on=2),
        lambda one: one.species == "ibex" and one.age > 0 and (one.visits or 0) & 4,
    )
    asked(
        residents.filter(species="lynx", age__gt=0, spot__within=Circle(GeoPoint(lat=46.95, lon=7.44), 500)),
        lambda one: one.species == "lynx" and one.age > 0 and one.spot is not None and one.spot.lat == 46.95,
    )
    asked(
        residents.filter(species="ibex", presence__contains=date(2024, 1, 8)),
        lambda one: one.species == "ibex" and one.arrives is not None and one.leaves in (None, date(2024, 1, 9)),
    )
    asked(
        residents.filter(species="lynx", age__gt=0, habitat__zone__icontains="OCK"),
        lambda one: one.species == "lynx" and one.age > 0 and one.habitat is not None and one.habitat.zone == "rock",
    )
    asked(
        residents.filter(species="lynx", age__gt=0, noted__search="x -c OR b"),
        lambda one: (
            one.species == "lynx" and one.age > 0 and ((one.note == "x" and "c" not in one.tags) or "b" in one.tags)
        ),
    )
    for one in everybody[:5]:
        for chip in one.chips or ():
            assert [found.pk for found in residents.filter(chips__contains=chip)] == [one.pk]
        if one.handle is not None:
            assert residents.get(handle=one.handle.upper()).pk == one.pk
    per_species = Counter(one.species for one in everybody)
    for species, count in per_species.items():
        assert residents.filter(species=species).count() == count
    rows = list(residents.group_by("species").aggregate(n=Count(), weight=Sum("weight"), age=Sum("age")))
    assert rows == [
        {
            "species": species,
            "n": per_species[species],
            "weight": sum(one.weight for one in everybody if one.species == species and one.weight is not None),
            "age": sum(one.age for one in everybody if one.species == species),
        }
        for species in sorted(per_species)
    ]
    for tag in "abc":
        tagged = [one for one in everybody if tag in one.tags and one.age > 0 and one.weight is not None]
        podium = residents.rank("podium", tags=tag)
        assert podium[:] == sorted(tagged, key=lambda one: (-one.weight, one.pk))
        assert podium.rank(weight=0) == 1 + sum(one.weight > 0 for one in tagged)
    stays = residents.filter(age__gt=0).aggregate(stay=Sum("stay"))["stay"]
    assert stays == sum((one.stay for one in everybody if one.age > 0), timedelta(0))


def state_of(db: Database, name: str) -> str | None:
    """The state of an index as the header lists it; None when it is dropped or was never built."""
    header: Any = db.kv.get(("__kvmodels__", "header")).value
    listed = header["collections"]["residents"]["indexes"]
    return next((index["state"] for index in listed if index["name"] == name), None)


def both_builders_killed_in_the_middle(path: Path, db: Database, name: str) -> bool:
    """Drop an index, let two processes build it, and kill both while it is under construction."""
    db.drop_index(Resident, name)
    builders = [start("build", path, "kinds") for _ in range(2)]
    for builder in builders:
        ready(builder)
    while state_of(db, name) is None:
        time.sleep(0.001)
    for builder in builders:
        builder.send_signal(signal.SIGKILL)
    for builder in builders:
        builder.communicate()
        crowd.remove(builder)
    return state_of(db, name) == "write_only"


def built_again_beside_writers(path: Path, seed: int, *, records: int, names: Sequence[str]) -> None:
    """Each of these indexes is dropped and built beside four writers, by builders that are killed half-way."""
    writers = [ready(start("write", path, "kinds", seed * 10 + n, records)) for n in range(4)]
    tries = {}
    with Database(path, models=[Resident], durability="relaxed", busy_timeout=60) as db:
        for name in names:
            tries[name] = next(n for n in range(1, 20) if both_builders_killed_in_the_middle(path, db, name))
    for builder in [start("build", path, "kinds") for _ in range(2)]:
        answer(ready(builder))
    for writer in writers:
        writer.send_signal(signal.SIGTERM)
    written = sum(answer(writer)["written"] for writer in writers)
    print(f"seed {seed}: {written} writes; builds until both were killed in the middle of one: {tries}")
    assert written > 0


def every_kind(path: Path, seed: int, *, records: int, writers: int, kills: int, names: Sequence[str]) -> None:
    fill(path, records, seed)
    counts = build_beside_writers(path, "kinds", seed, writers=writers, kills=kills, keys=records, builders=BUILDERS)
    print(f"seed {seed}: {counts}")
    assert counts["killed"] > 0
    assert counts["written"] > 0
    if names:
        built_again_beside_writers(path, seed, records=records, names=names)
    with Database(path, models=[Resident], durability="relaxed", require_current=True) as db:
        assert db.build_indexes() == ()
        assert audit(read_store(db.kv), [SPEC]) == []
        assert db.check().findings == ()
        answers_are_right(db[Resident])


@pytest.mark.servers
def test_every_kind_of_index_is_built_beside_writers_by_two_builders_that_are_killed(tmp_path):
    every_kind(tmp_path / "app.db", 5, records=80, writers=2, kills=2, names=())


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_builds_of_every_kind_over_large_collections_beside_writers(tmp_path, seed):
    names = [index.name for index in SPEC.indexes]
    assert len(names) >= 25
    every_kind(tmp_path / "kinds.db", seed, records=360, writers=4, kills=20, names=names[seed::5])


# --- one process: what an index of each kind cannot hold --------------------------------------------------------------


class Plain(KvModel, collection="items"):
    """The release before."""

    id: PrimaryKey[int]
    name: str = ""
    tags: list[str] = Field(default_factory=list)
    size: int | None = None
    group: str = "g"


def length(name: str) -> str:
    """Fails on what nobody expected."""
    if name == "bad":
        raise ValueError(name)
    return str(len(name))


class UniqueTags(Plain, collection="items"):
    class Meta:
        indexes: ClassVar = (UniqueConstraint("tags"),)


class FewTags(Plain, collection="items"):
    tags: Annotated[list[str], MultiIndexed(max_fan_out=2)] = Field(default_factory=list)


class FewGroups(Plain, collection="items"):
    class Meta:
        indexes: ClassVar = (AggregateIndex("tags", max_fan_out=2, name="per_tag"),)


class Summed(Plain, collection="items"):
    class Meta:
        indexes: ClassVar = (AggregateIndex("group", sums=("size",), name="totals"),)


class Measured(Plain, collection="items"):
    class Meta:
        indexes: ClassVar = (Index("name", key=length, version=1, name="length"),)


class SomeUnique(Plain, collection="items"):
    class Meta:
        indexes: ClassVar = (UniqueConstraint("name", where=Q(size__gt=0), include=("size",), name="sized"),)


class Folded(Plain, collection="items"):
    name: Annotated[str, Indexed(key=str.casefold)] = ""

    class Meta:
        indexes: ClassVar = (UniqueConstraint("name", name="one_name"),)


def exact(db: Database, model: Any) -> None:
    """Nothing is wrong with the store."""
    assert audit(read_store(db.kv), [spec_of(model)]) == []
    assert db.check().findings == ()


def built(opened: Any, model: Any, *records: Plain) -> tuple[Database, Any, dict[int, str]]:
    """A database of the later release after a first build, and what that build could not index."""
    opened(Plain)[Plain].bulk_create(records)
    db = opened(model)
    (report,) = (one for one in db.build_indexes() if one.violations)
    assert report.state == "pending"
    exact(db, model)
    return db, db[model], {found.key: found.kind for found in report.violations}


def finished(db: Database, model: Any) -> None:
    """The build that was pending comes to its end."""
    assert [report.state for report in db.build_indexes()] == ["readable"]
    exact(db, model)


def test_duplicate_elements_keep_an_index_pending_until_they_are_changed(opened):
    db, items, violations = built(
        opened, UniqueTags, Plain(id=1, tags=["a", "b"]), Plain(id=2, tags=["b", "c"]), Plain(id=3, tags=["c", "a"])
    )
    assert violations == {2: "duplicate", 3: "duplicate"}
    with pytest.raises(IndexNotReadyError):
        items.filter(tags__contains="a").to_list()
    with pytest.raises(UniqueViolationError):
        items.create(id=4, tags=["x", "c"])
    items.patch(2, group="h")  # what does not touch its tags is allowed, and it stays a duplicate
    exact(db, UniqueTags)
    items.patch(1, tags=["a", "d"])
    exact(db, UniqueTags)
    items.patch(3, tags=["e"])
    exact(db, UniqueTags)
    finished(db, UniqueTags)
    assert [found.id for found in items.filter(tags__contains="b")] == [2]


@pytest.mark.parametrize("model", [FewTags, FewGroups])
def test_a_record_with_too_many_elements_is_listed_until_it_has_fewer(opened, model):
    db, items, violations = built(opened, model, Plain(id=1, tags=["a", "b", "c"]), Plain(id=2, tags=["a", "a", "b"]))
    assert violations == {1: "too_many"}
    with pytest.raises(OperationTooLargeError) as caught:
        items.create(id=3, tags=["x", "y", "z"])
    assert (caught.value.limit, caught.value.size, caught.value.maximum) == ("max_fan_out", 3, 2)
    items.patch(1, tags=["c", "c"])
    exact(db, model)
    finished(db, model)


def test_a_record_whose_number_no_sum_takes_is_listed_until_it_is_smaller(opened):
    db, items, violations = built(opened, Summed, Plain(id=1, size=2**63), Plain(id=2, size=-5), Plain(id=3))
    assert violations == {1: "not_encodable"}
    items.patch(1, size=2**63 - 1)
    exact(db, Summed)
    finished(db, Summed)
    assert items.filter(group="g").aggregate(total=Sum("size")) == {"total": 2**63 - 6}
    items.remove(1)
    items.remove(2)
    assert items.filter(group="g").aggregate(total=Sum("size")) == {"total": None}
    exact(db, Summed)


def test_a_record_with_a_deadline_is_listed_until_it_has_none(opened):
    first = opened(Plain)[Plain]
    first.create(id=1, size=3, expire_in=3600)
    first.create(id=2, size=4)
    db = opened(Summed)
    (report,) = db.build_indexes()
    assert [(found.key, found.kind) for found in report.violations] == [(1, "expires")]
    exact(db, Summed)
    db[Summed].patch(1, expire_in=None)
    exact(db, Summed)
    finished(db, Summed)


def test_a_record_whose_function_fails_is_listed_until_it_is_changed(opened):
    db, items, violations = built(opened, Measured, Plain(id=1, name="bad"), Plain(id=2, name="good"))
    assert violations == {1: "key_function"}
    items.patch(1, name="better")
    finished(db, Measured)
    assert [found.id for found in items.filter(length="6")] == [1]


def test_only_what_is_under_the_condition_is_a_duplicate(opened):
    db, items, violations = built(
        opened, SomeUnique, Plain(id=1, name="a"), Plain(id=2, name="a", size=1), Plain(id=3, name="a", size=2)
    )
    assert violations == {3: "duplicate"}
    items.patch(3, size=0)
    exact(db, SomeUnique)
    finished(db, SomeUnique)
    with pytest.raises(UniqueViolationError):
        items.patch(3, size=5)
    assert [found.id for found in items.filter(name="a", size__gt=0)] == [2]


def test_names_that_are_folded_to_one_are_duplicates(opened):
    db, items, violations = built(opened, Folded, Plain(id=1, name="Strasse"), Plain(id=2, name="STRAßE"))
    assert violations == {2: "duplicate"}
    items.remove(1)
    exact(db, Folded)
    finished(db, Folded)
    assert items.get(name="sTrAsSe").id == 2
