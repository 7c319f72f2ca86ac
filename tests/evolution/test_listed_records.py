"""Records that an index under construction cannot hold, and what other builds, releases and limits do with them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import pytest
from pydantic import field_validator

from kvmodels import (
    Database,
    Field,
    Indexed,
    KvModel,
    Limits,
    OperationTooLargeError,
    PrimaryKey,
    Unique,
    UniqueViolationError,
)
from kvmodels.catalog.catalogue import IndexState
from kvmodels.flows.effects import Commit
from kvmodels.flows.evolution.build import build_index
from kvmodels.runtime.sync import perform, run
from kvmodels.schema.declare.declarations import AggregateIndex, UniqueConstraint
from kvmodels.schema.declare.markers import MultiIndexed
from tests.oracle import audit, read_store, spec_of


class Plain(KvModel, collection="notes"):
    """The release before."""

    id: PrimaryKey[int]
    tags: list[str] = Field(default_factory=list)
    size: int = 0


class Tagged(Plain, collection="notes"):
    tags: MultiIndexed[list[str]] = Field(default_factory=list)


class OneOwner(Plain, collection="notes"):
    class Meta:
        indexes: ClassVar = (UniqueConstraint("tags"),)


class Counted(Tagged, collection="notes"):
    """A release later: a build that sets every record, whatever other indexes hold of it."""

    class Meta:
        indexes: ClassVar = (AggregateIndex(name="all"), AggregateIndex("tags", name="per_tag"))


class FewTags(Plain, collection="notes"):
    tags: Annotated[list[str], MultiIndexed(max_fan_out=2)] = Field(default_factory=list)


class FewCounted(FewTags, collection="notes"):
    """The indexes of ``Counted``, but for fewer tags."""

    class Meta:
        indexes: ClassVar = (AggregateIndex(name="all"), AggregateIndex("tags", name="per_tag", max_fan_out=2))


class Owned(Plain, collection="notes"):
    class Meta:
        indexes: ClassVar = (UniqueConstraint("tags"), AggregateIndex(name="all"))


class FewOwned(Plain, collection="notes"):
    class Meta:
        indexes: ClassVar = (UniqueConstraint("tags", max_fan_out=2), AggregateIndex(name="all"))


def exact(db: Database, model: Any) -> None:
    assert audit(read_store(db.kv), [spec_of(model)]) == []
    assert db.check().findings == ()


def violations(reports: Any) -> dict[str, dict[int, str]]:
    return {
        report.index: {found.key: found.kind for found in report.violations} for report in reports if report.violations
    }


def begin(db: Database, model: Any, name: str, commits: int = 1) -> None:
    """The first commits of a build, after which its process is gone."""
    core = db._core
    flow = build_index(core.context, core.schema_for(model), name)
    request = next(flow)
    while commits:
        commits -= isinstance(request, Commit)
        request = flow.send(perform(db._engine, request))
    flow.close()


def test_a_record_with_a_long_element_gets_all_entries_when_it_is_shortened_after_another_build_has_set_it(opened):
    opened(Plain)[Plain].create(id=1, tags=["short", "x" * 3_000])
    assert violations(opened(Tagged).build_indexes()) == {"tags": {1: "too_long"}}
    db = opened(Counted)
    assert violations(db.build_indexes()) == {"tags": {1: "too_long"}, "per_tag": {1: "too_long"}}
    exact(db, Counted)
    db[Counted].patch(1, tags=["short", "other"])
    exact(db, Counted)
    assert violations(db.build_indexes()) == {}
    assert [note.id for note in db[Counted].filter(tags__contains="short")] == [1]
    exact(db, Counted)


def test_a_listed_record_gets_all_entries_from_a_release_that_allows_more_after_another_build_has_set_it(opened):
    opened(Plain)[Plain].create(id=1, tags=["a", "b", "c"])
    assert violations(opened(FewTags).build_indexes()) == {"tags": {1: "too_many"}}
    assert violations(opened(FewCounted).build_indexes()) == {"tags": {1: "too_many"}, "per_tag": {1: "too_many"}}
    db = opened(Counted)
    db[Counted].patch(1, size=4)
    exact(db, Counted)
    assert violations(db.build_indexes()) == {}
    exact(db, Counted)


def test_a_release_that_allows_fewer_values_builds_beside_records_that_have_more(opened):
    wide = opened(Tagged)
    wide[Tagged].create(id=1, tags=["a", "b", "c"])
    few = opened(FewCounted)
    assert violations(few.build_indexes()) == {"per_tag": {1: "too_many"}}
    exact(few, FewCounted)
    with pytest.raises(OperationTooLargeError):
        few[FewCounted].patch(1, size=4)
    few[FewCounted].patch(1, tags=["c"])
    exact(few, FewCounted)


def test_what_a_process_may_not_hold_stays_as_another_process_wrote_it_to_an_index_under_construction(opened):
    opened(Plain)[Plain].create(id=0)
    wide, few = opened(Counted), opened(FewCounted)
    begin(wide, Counted, "tags")
    begin(wide, Counted, "per_tag")
    wide[Counted].create(id=1, tags=["a", "b", "c"])
    assert violations(few.build_indexes()) == {}, "the counters of all set the record, which is in both indexes"
    exact(wide, Counted)
    few[FewCounted].patch(1, tags=["c"])
    exact(few, FewCounted)


@pytest.mark.parametrize("index", ["tags", "owners"])
def test_what_a_build_lists_for_another_has_no_entries_although_that_one_may_have_written_them(opened, index):
    """The other process allows more; the record was indexed and not set, so that it is older than the fence."""
    opened(Plain)[Plain].create(id=1, tags=["a", "b", "c"])
    wide = opened(Counted if index == "tags" else Owned)
    begin(wide, Counted if index == "tags" else Owned, "tags", commits=2)
    assert len(list(wide.kv.list(prefix=("notes_by_tags",)))) == 3
    model = FewCounted if index == "tags" else FewOwned
    few = opened(model)
    run(few._engine, build_index(few._core.context, few._core.schema_for(model), "all"))
    exact(few, model)
    few[model].patch(1, tags=["c"])
    exact(few, model)
    assert violations(few.build_indexes()) == {}
    exact(few, model)


def test_repair_writes_the_entries_of_a_record_that_has_more_values_than_are_allowed_now(opened):
    opened(Tagged)[Tagged].create(id=1, tags=["a", "b", "c"])
    db = opened(FewTags)
    db.kv.unsafe().delete(("notes_by_tags", "b", 1))
    assert db.check(repair=True).ok
    exact(db, FewTags)


def test_listed_records_are_tried_again_after_another_build_has_begun_meanwhile(opened):
    opened(Plain)[Plain].bulk_create([Plain(id=n, tags=[str(n // 2)]) for n in range(4)])
    db = opened(Owned)
    core = db._core

    def build_of_tags() -> Any:
        return build_index(core.context, core.schema_for(Owned), "tags")

    assert {found.key for found in run(db._engine, build_of_tags()).violations} == {1, 3}
    for owner in (0, 2):
        db[Owned].remove(owner)
    flow, commits = build_of_tags(), 0
    request = next(flow)
    with pytest.raises(StopIteration) as ended:
        while True:
            if isinstance(request, Commit):
                commits += 1
                if commits == 1:
                    begin(opened(Owned), Owned, "all")  # which changes the header
            request = flow.send(perform(db._engine, request))
    assert ended.value.value.state is IndexState.READABLE
    assert violations(db.build_indexes()) == {}
    exact(db, Owned)


@pytest.mark.parametrize(("model", "elements"), [(Tagged, 1_000), (OneOwner, 98)])
def test_a_record_whose_entries_are_too_many_for_one_operation_is_listed_and_stops_nobody(opened, model, elements):
    limits = Limits.DENO
    before = opened(Plain, limits=limits)
    before[Plain].create(id=1, tags=[f"t{n}" for n in range(elements)])
    before[Plain].create(id=2, tags=["u"])
    db = opened(model, limits=limits)
    assert violations(db.build_indexes()) == {"tags": {1: "too_many"}}
    assert violations(db.build_indexes()) == {"tags": {1: "too_many"}}, "nor does it stop those who look at it again"
    exact(db, model)
    with pytest.raises(OperationTooLargeError):
        db[model].patch(1, size=2)
    db[model].patch(1, tags=["v"])
    exact(db, model)
    assert violations(db.build_indexes()) == {}
    assert [note.id for note in db[model].filter(tags__contains="v")] == [1]
    exact(db, model)


def test_a_record_whose_entries_are_too_many_for_one_operation_can_be_removed(opened):
    limits = Limits.DENO
    opened(Plain, limits=limits)[Plain].create(id=1, tags=[f"t{n}" for n in range(1_000)])
    db = opened(Tagged, limits=limits)
    db.build_indexes()
    assert db[Tagged].remove(1)
    assert violations(db.build_indexes()) == {}
    exact(db, Tagged)


class Mixed(KvModel, collection="people"):
    """The release before took every form of an address."""

    id: PrimaryKey[int]
    email: Unique[str]


class Lowered(KvModel, collection="people"):
    """A release whose validator makes two stored addresses one, and whose new index wants every record written."""

    id: PrimaryKey[int]
    email: Unique[str]
    plan: Indexed[str] = Field(default="free")

    @field_validator("email")
    @classmethod
    def lower(cls, value: str) -> str:
        return value.lower()


def test_a_record_that_cannot_be_written_without_taking_the_value_of_another_is_listed_and_stops_nobody(opened):
    before = opened(Mixed)[Mixed]
    before.bulk_create([Mixed(id=1, email="ada@x.org"), Mixed(id=2, email="ADA@x.org"), Mixed(id=3, email="Bob@x.org")])
    db = opened(Lowered)
    assert violations(db.build_indexes()) == {"plan": {2: "duplicate"}}
    (report,) = db.build_indexes()
    assert report.violations == ((2, "duplicate", "email"),)
    with pytest.raises(UniqueViolationError):
        db[Lowered].patch(2, plan="paid")
    db[Lowered].patch(2, email="ADA2@x.org")
    assert violations(db.build_indexes()) == {}
    assert [person.id for person in db[Lowered].filter(plan="free")] == [1, 2, 3]
    assert [person.email for person in db[Lowered].all()] == ["ada@x.org", "ada2@x.org", "bob@x.org"]
    exact(db, Lowered)
