"""Every result that users get is a type for pydantic and FastAPI, and a value for ``asdict`` and ``jsonable_encoder``.

The results are derived: all dataclasses, named tuples and enumerations that ``kvmodels`` exports or a method returns.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import json
import operator
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError

import kvmodels
from kvmodels import (
    UNDEFINED,
    AggregateIndex,
    BoardPlan,
    BulkFailure,
    BulkProgress,
    ChangeBatch,
    ChangedRecord,
    ChangePage,
    CheckReport,
    Count,
    Database,
    FinishedOperation,
    FollowedChange,
    FollowReport,
    History,
    Hit,
    ImportResult,
    Indexed,
    IndexViolation,
    InvalidValueError,
    KvModel,
    KvU64,
    LeftOut,
    Limits,
    MigrationReport,
    OperationCounters,
    Page,
    Position,
    PrimaryKey,
    QueryPlan,
    RejectedRow,
    RetryPolicy,
    RotationReport,
    RowStats,
    SchemaPlan,
    SchemaProgress,
    SearchHit,
    Sum,
    TenantFailure,
    TenantGroup,
    TenantProgress,
    TenantsCheck,
    TenantsPlan,
    TenantsReport,
    TenantsStats,
    TenantStatus,
    Unique,
    describe,
)
from kvmodels.catalog.evolution import RefusedRecord
from kvmodels.core.operations import Entry
from kvmodels.flows.kv.dead_letters import DeadLetter
from kvmodels.flows.transfer.load import LoadResult
from kvmodels.query.plans import KeyRange

ARGUMENTS = {
    "Avg",
    "Box",
    "Circle",
    "Comparison",
    "Count",
    "DatabaseSettings",
    "DegreeBox",
    "Exists",
    "F",
    "History",
    "Hooks",
    "KeyNumber",
    "Max",
    "Min",
    "Order",
    "ParsedLookups",
    "Polygon",
    "StoredBlob",
    "Sum",
    "Trunc",
    "Upgrade",
}
"""Data classes that users give to the library, their parts, and those that hold functions of users."""


class Person(KvModel):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    age: int = 0

    class Meta:
        indexes = (AggregateIndex("color", sums=("age",)),)


class Member(KvModel, collection="members"):
    id: PrimaryKey[int]
    name: str


class Dated(KvModel, collection="dated"):
    id: PrimaryKey[int]
    name: str

    class Meta:
        history = History()


class NamedMember(KvModel, collection="members"):
    """A later release, whose unique index two records contradict."""

    id: PrimaryKey[int]
    name: Unique[str]


def classes_in(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    origin = typing.get_origin(hint)
    for part in (origin, *typing.get_args(hint)) if origin is not None else ():
        yield from classes_in(part)


def returned_by(cls: type) -> Iterator[type]:
    """The classes in the return annotations of its public methods, properties and iterators."""
    for name, member in inspect.getmembers_static(cls):
        shown = not name.startswith("_") or name in {"__getitem__", "__iter__", "__next__", "__anext__", "__enter__"}
        function = inspect.unwrap(getattr(member, "fget", getattr(member, "__func__", member)))
        if shown and inspect.isfunction(function) and function.__module__.startswith("kvmodels."):
            hint = function.__annotations__.get("return")
            yield from classes_in(eval(hint, function.__globals__) if isinstance(hint, str) else hint)


def public_results() -> dict[str, type]:
    found: set[type] = set()
    waiting = [thing for name in kvmodels.__all__ if isinstance(thing := getattr(kvmodels, name), type)]
    waiting += [kvmodels.Kv, kvmodels.AsyncKv]
    while waiting:
        cls = waiting.pop()
        if cls.__module__.split(".")[0] == "kvmodels" and cls not in found and not issubclass(cls, Exception):
            found.add(cls)
            waiting += returned_by(cls)
    data = {cls for cls in found if dataclasses.is_dataclass(cls) or issubclass(cls, tuple | Enum)}
    return {cls.__name__: cls for cls in data if cls.__name__ not in ARGUMENTS}


RESULTS = public_results()


def of_people() -> Iterator[object]:
    finished: list[FinishedOperation] = []
    with Database("memory://", models=[Person], observer=finished.append) as db:
        db.add_observer(OperationCounters())
        people = db[Person]
        people.bulk_create([Person(id=n, email=f"{n}@example.com", color="red", age=n) for n in (1, 2)])
        [item] = people.bulk_create([Person(id=3, email="1@example.com", color="red")], on_conflict="ignore")
        written = people.filter(color="red").update(email="1@example.com", on_error="collect")
        plan = people.filter(color="red").explain(analyze=True)
        yield from (item, written, *written.failed, plan, plan.ranges[0], plan.tree())
        yield people.explain_aggregate(Count(), Sum("age"))
        yield people.group_by("color").aggregate(Count()).explain()
        yield people.order_by("id").page(size=1)
        model = describe(Person)
        yield from (model, model.fields[0], model.primary_key[0], model.indexes[0])
        yield from (db.collections()[0], db.indexes()[0], db.explain_key(("people", 1)))
        stats = db.stats()
        yield from (stats, stats.collections[0], stats.collections[0].indexes[0], stats.other)
        yield db.kv.set(("a", b"\xff"), 1.0)
        yield db.kv.get(("a", b"\xff"))
        db.kv.enqueue(b"\xff", keys_if_undelivered=[("failed", b"\xff")])
        yield from db.kv.messages()
        with db.kv.lock("report"):
            yield from db.kv.locks()
        yield from (finished[-1], db.metrics())


def of_history() -> Iterator[object]:
    with Database("memory://", models=[Dated]) as db:
        db[Dated].create(id=1, name="a")
        db[Dated].remove(1)
        [revision] = db[Dated].trash()
        yield from (revision, revision.ended, db[Dated].restore(1, also=True), describe(Dated).history)


def of_members() -> Iterator[object]:
    url = "memory://members"
    with Database(url, models=[Member]) as old:
        old[Member].bulk_create([Member(id=1, name="a"), Member(id=2, name="a")])
        new = Database(url, models=[NamedMember])
    with new:
        plan = new.plan()
        seen: list[SchemaProgress] = []
        report = new.apply(progress=seen.append)
        yield from (plan, plan.steps[0], plan.steps[0].kind, report, report.builds[0], seen[0])
        yield from (report.builds[0].violations[0], new.violations(NamedMember)[0])
        new.kv.unsafe().set(("members", 3, 4), {"a": 1})
        check = new.check()
        yield from (check, check.findings[0])


OF_OTHER_KINDS: tuple[object, ...] = (
    BoardPlan("board", 12, 3, 5),
    BulkProgress(2, 1, 1),
    ChangeBatch(None, [FollowedChange(("members", 1), None, "0" * 20)], Position("ab1", "0" * 16, "1" * 20)),
    FollowReport(1, [("members", 1)], [], []),
    FollowedChange(("members", 1), None, "0" * 20),
    ChangePage([ChangedRecord(1, None, None)], Position("ab1", "0" * 16, "1" * 20, "0261"), True),
    ChangedRecord(1, None, None),
    DeadLetter("01M853PBRCK0QG1JSN3MF21WTZ", (Entry(("failed", b"\xff"), b"\xff", "0" * 20),)),
    LeftOut("dated", 1, "exists"),
    ImportResult(3, 1, 1, (RejectedRow(0, "line 2", ()),), (BulkFailure(1, "UniqueViolationError", "taken"),)),
    Hit(Member(id=1, name="a"), 12.5),
    Limits.DENO,
    LoadResult(2, 1),
    Position("ab1", "0" * 16, "1" * 20, "0261"),
    MigrationReport("members", 1, True, 2, 2, (IndexViolation(1, "duplicate"),)),
    RotationReport("members", 2, True, 2, 2, 1, (IndexViolation(1, "not_decodable"),)),
    RejectedRow(3, "line 5", ({"type": "missing", "loc": ("name",), "msg": "Field required"},)),
    RefusedRecord(1, "name: missing"),
    RetryPolicy(),
    SearchHit(Member(id=1, name="a"), 1.5),
    TenantFailure("acme", "TenantRemovedError", "the tenant was removed"),
    TenantGroup(SchemaPlan(()), ("acme",)),
    TenantProgress("acme", 1, 2),
    TenantsCheck(2, 7, {"acme": CheckReport(7, (), ("users.name: it is not built",))}),
    TenantsPlan((TenantGroup(SchemaPlan(()), ("acme",)),)),
    TenantsReport(1, ("acme",)),
    TenantsStats({"acme": RowStats(2, 70)}),
    TenantStatus("acme", "active"),
)

SAMPLES = {type(one).__name__: one for make in (of_people, of_members, of_history) for one in make()}
SAMPLES |= {type(one).__name__: one for one in OF_OTHER_KINDS}


def test_every_public_result_has_a_sample():
    assert RESULTS.keys() == SAMPLES.keys()
    assert len(RESULTS) > 25


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_a_result_is_a_type_for_pydantic(name: str):
    cls, sample = RESULTS[name], SAMPLES[name]
    adapter: TypeAdapter[Any] = TypeAdapter(cls)
    for mode in ("validation", "serialization"):
        assert json.dumps(adapter.json_schema(mode=mode))
    assert adapter.validate_python(sample) == sample
    assert adapter.dump_python(sample) is not None
    assert json.loads(adapter.dump_json(sample)) == adapter.dump_python(sample, mode="json")


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_a_result_is_encoded_by_fastapi(name: str):
    sample = SAMPLES[name]
    json.dumps(jsonable_encoder(sample, custom_encoder={bytes: bytes.hex}))  # FastAPI takes bytes for text otherwise
    if dataclasses.is_dataclass(sample) and not isinstance(sample, type):
        shown = dataclasses.asdict(sample)
        assert shown.keys() == {field.name for field in dataclasses.fields(sample)}


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_the_annotations_of_a_result_can_be_evaluated(name: str):
    hints = typing.get_type_hints(RESULTS[name])
    assert set(hints) == set(RESULTS[name].__annotations__)


def test_fastapi_answers_with_a_page_of_models_and_with_a_plan():
    app = FastAPI()
    db = Database("memory://", models=[Person])
    db[Person].create(id=1, email="a@example.com", color="red")

    def people(after: str | None = None) -> Page[Person]:
        return db[Person].order_by("id").page(size=2, after=after)

    def plan() -> QueryPlan:
        return db[Person].filter(color="red").explain()

    app.get("/people")(people)
    app.get("/plan")(plan)
    with db, TestClient(app) as client:
        assert client.get("/people").json() == {
            "items": [{"id": 1, "email": "a@example.com", "color": "red", "age": 0}],
            "next_cursor": None,
            "has_more": False,
            "previous_cursor": client.get("/people").json()["previous_cursor"],
            "has_previous": False,
        }
        assert client.get("/plan").json()["scans"][0]["index"] == "color"
        schemas = client.get("/openapi.json").json()["components"]["schemas"]
        assert schemas["Page_Person_"]["properties"]["items"]["items"] == {"$ref": "#/components/schemas/Person"}


def test_a_plan_is_not_made_of_its_fields_and_keeps_what_they_do_not_show():
    plan = SAMPLES["QueryPlan"]
    assert isinstance(plan, QueryPlan)
    with pytest.raises(ValidationError, match="a QueryPlan cannot be made of its fields"):
        TypeAdapter(QueryPlan).validate_python(dataclasses.asdict(plan))
    moved = dataclasses.replace(plan, start=1)
    assert (moved.schema, moved.ranges, str(moved).splitlines()[0]) == (
        plan.schema,
        plan.ranges,
        str(plan).splitlines()[0],
    )
    assert "schema" not in dataclasses.asdict(plan)


def test_stored_values_have_a_form_in_json():
    entry = Entry(("a", b"\xff", 1), {"n": [KvU64(2), b"\x01"], "u": UNDEFINED}, None)
    assert json.loads(TypeAdapter(Entry).dump_json(entry)) == [["a", "ff", 1], {"n": [2, "01"], "u": None}, None, None]
    assert TypeAdapter(Entry).dump_python(entry)[1] == entry.value


def test_errors_and_packed_keys_have_a_form_in_json():
    failure, key_range = SAMPLES["BulkFailure"], SAMPLES["KeyRange"]
    assert isinstance(failure, BulkFailure)
    assert isinstance(key_range, KeyRange)
    shown = TypeAdapter(BulkFailure).dump_python(failure, mode="json")
    assert shown[1] == "UniqueViolationError"
    assert shown[3].startswith("UniqueViolationError: [KV")
    assert TypeAdapter(BulkFailure).dump_python(failure)[3] is failure.error
    with pytest.raises(ValidationError, match="an error cannot be restored from its text"):
        TypeAdapter(BulkFailure).validate_json(json.dumps(shown))
    again = TypeAdapter(KeyRange).validate_json(TypeAdapter(KeyRange).dump_json(key_range))
    assert again == key_range


COUNTS_AND_VERDICTS = {
    "BuildReport",
    "BulkItem",
    "BulkProgress",
    "BulkResult",
    "CheckReport",
    "CollectionStats",
    "Entry",
    "HeldLock",
    "ImportResult",
    "IndexStats",
    "IndexStatus",
    "LoadResult",
    "MigrationReport",
    "RotationReport",
    "RowStats",
    "SchemaPlan",
    "SchemaProgress",
    "SchemaReport",
    "StoreStats",
    "TenantProgress",
    "TenantsCheck",
    "TenantsPlan",
    "TenantsReport",
    "TenantsStats",
}
"""Results that stand for a count or a verdict: they have no truth value, and are not compared with a number."""

WITH_A_TRUTH = {"ChangeBatch", "ChangePage", "CommitResult", "Page"}
"""Results with the truth that a reader expects: whether the commit was applied, and whether the page has items."""

THINGS = {
    "AggregatePlan",
    "BoardPlan",
    "BulkFailure",
    "ChangedRecord",
    "CollectionDescription",
    "ColumnDescription",
    "DeadLetter",
    "FieldDescription",
    "Finding",
    "FinishedOperation",
    "FollowReport",
    "FollowedChange",
    "GroupPlan",
    "HistoryDescription",
    "Hit",
    "IndexDescription",
    "IndexViolation",
    "KeyExplanation",
    "KeyRange",
    "LeftOut",
    "Limits",
    "Metrics",
    "ModelDescription",
    "PlanNode",
    "PlanStep",
    "Position",
    "QueryPlan",
    "QueuedMessage",
    "RecordViolation",
    "RefusedRecord",
    "RejectedRow",
    "Restored",
    "RetryPolicy",
    "Revision",
    "RevisionEnd",
    "SearchHit",
    "StepKind",
    "TenantFailure",
    "TenantGroup",
    "TenantStatus",
}
"""Descriptions, settings and parts of results: always true, as every object, where one of them or None is expected."""


def test_each_public_result_has_a_rule_for_its_truth():
    assert RESULTS.keys() == COUNTS_AND_VERDICTS | WITH_A_TRUTH | THINGS
    assert len(RESULTS) == len(COUNTS_AND_VERDICTS) + len(WITH_A_TRUTH) + len(THINGS)


@pytest.mark.parametrize("name", sorted(COUNTS_AND_VERDICTS))
def test_a_count_or_verdict_refuses_its_truth_and_a_comparison_with_a_number(name: str):
    sample: Any = SAMPLES[name]
    asked: list[Callable[[], object]] = [lambda: bool(sample)]
    compare: tuple[Any, ...] = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
    asked += [functools.partial(how, sample, 1) for how in compare]
    for ask in asked:
        with pytest.raises(InvalidValueError) as caught:
            ask()
        assert caught.value.type == name
        named = [word.strip(",").split(".")[1] for word in (caught.value.hint or "").split() if "." in word.strip(".,")]
        assert named, "the hint names attributes"
        assert all(hasattr(sample, attribute) for attribute in named)
    assert sample == copy.copy(sample)
    assert sample != object()
    assert sample in [sample]


@pytest.mark.parametrize("name", sorted(THINGS))
def test_every_other_result_is_true(name: str):
    assert SAMPLES[name]
    assert SAMPLES[name] != 1


def test_a_result_that_is_unpacked_or_indexed_like_that_of_django_names_the_attribute():
    with Database("memory://", models=[Person]) as db:
        people = db[Person].filter(color="red")
        deleted: Any = people.delete()
        with pytest.raises(InvalidValueError, match=r"Write result\.written"):
            _, _ = deleted
        with pytest.raises(InvalidValueError, match=r"Write result\.written"):
            deleted[0]
