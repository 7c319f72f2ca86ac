"""`db.plan()` lists each difference between models and store, and `db.apply()` does exactly that."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import pytest

from kvmodels import (
    ULID,
    Database,
    Field,
    Index,
    Indexed,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    Unique,
    UnknownFieldError,
    Upgrade,
)
from kvmodels.catalog.catalogue import IndexState
from kvmodels.catalog.evolution import SchemaPlan
from kvmodels.catalog.plan_rules import RULES, StepKind
from tests.evolution.releases import City, First, user
from tests.oracle import audit, read_store, spec_of
from tests.robustness.models import require_readable

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "evolving.md"


def folded(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "color": document["color"].upper(), "plan": "x"}


def numbered(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "color": len(document["color"]), "plan": "x"}


class Same(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: str = Field(default="")


class Plus(Same, collection="users"):
    plan: str = "free"


class PlusIndexed(Same, collection="users"):
    plan: Indexed[str] = Field(default="free")


class Required(Same, collection="users"):
    plan: str


class Filled(Same, collection="users"):
    plan: str

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, folded, touches=("plan", "color")),)


class Without(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]


class Wider(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: str | list[int] | None = ""


class Retyped(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: bytes = b""


class Converted(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[int]
    name: str = ""
    plan: str

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, numbered, touches=("plan", "color")),)


class RetypedColumn(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[int]
    name: str = ""


class OtherKey(KvModel, collection="users"):
    id: int
    email: PrimaryKey[str]
    color: Indexed[str]
    name: str = ""


class Higher(Same, collection="users"):
    class Meta:
        schema_version: ClassVar = 2


class Changed(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Annotated[str, Indexed(descending=True)]
    name: str = ""


class Fewer(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: str
    name: str = ""


class UniqueColor(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    color: Unique[str]
    name: str = ""


def failing(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "name": {"0": "zero", "1": 1}[document["name"][-1]]}


class Failing(Same, collection="users"):
    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, failing, touches=("name",)),)


class Narrower(Same, collection="users"):
    """The names of types are the same, so that only the records tell."""

    name: str = Field(default="", max_length=6, pattern="[02]$")


class Case(NamedTuple):
    """A release over the store of the first, what its plan says, and the names that its plan needs."""

    model: Any
    steps: list[tuple[str | None, str]]
    allow: tuple[str, ...] = ()
    records: int = 4
    before: Callable[[Any], object] = lambda db: None


def after_newer(db: Any) -> None:
    db.build_indexes()


CASES = {
    "the same": Case(Same, []),
    "an empty collection": Case(Required, [], records=0),
    "a field with a default": Case(Plus, [("plan", "field_added")]),
    "a field with an index": Case(PlusIndexed, [("plan", "field_added"), ("plan", "index_added")]),
    "a field without a default": Case(Required, [("plan", "field_required")]),
    "a field that an upgrade fills": Case(
        Filled,
        [
            (None, "schema_version_raised"),
            ("plan", "field_filled"),
            ("color", "index_outdated"),
            (None, "records_outdated"),
        ],
    ),
    "a field less": Case(Without, [("name", "field_removed")]),
    "a wider type": Case(Wider, [("name", "field_widened")]),
    "another type": Case(Retyped, [("name", "field_retyped")], allow=("change_type",)),
    "another type that an upgrade converts": Case(
        Converted,
        [
            (None, "schema_version_raised"),
            ("color", "field_converted"),
            ("plan", "field_filled"),
            ("color", "index_replaced"),
            (None, "records_outdated"),
        ],
    ),
    "another type of a column": Case(RetypedColumn, [("color", "column_retyped")]),
    "an upgrade that does not take some records": Case(
        Failing,
        [(None, "schema_version_raised"), (None, "upgrade_fails"), (None, "records_outdated")],
        ("leave_records",),
    ),
    "a tighter bound": Case(Narrower, [(None, "records_refused")]),
    "another primary key": Case(OtherKey, [(None, "primary_key_changed")]),
    "a higher version": Case(Higher, [(None, "schema_version_raised")]),
    "another definition": Case(Changed, [("color", "index_changed")]),
    "an index less": Case(Fewer, [("color", "index_undeclared")], allow=("drop_index",)),
}


def steps_of(plan: SchemaPlan) -> list[tuple[str | None, str]]:
    return [(step.subject, step.rule) for step in plan.steps]


def contents(db: Database) -> list[Any]:
    return [(entry.key, entry.value, entry.versionstamp) for entry in db.kv.list(prefix=())]


@pytest.mark.parametrize("name", CASES)
def test_the_plan_names_every_difference_and_apply_does_what_it_says(opened, name):
    case = CASES[name]
    old = opened(First)
    old[First].bulk_create([First(**user(n)) for n in range(case.records)])
    db = opened(case.model)
    before = contents(db)
    plan = db.plan()
    assert steps_of(plan) == case.steps
    assert contents(db) == before
    spoilt = [one.key for step in plan.steps for one in step.records]
    refused = any(step.kind is StepKind.REFUSED for step in plan.steps)
    if refused:
        with pytest.raises(SchemaChangeRefusedError) as caught:
            db.apply()
        rules = [rule for _, rule in case.steps if RULES[rule].kind is StepKind.REFUSED]
        assert [text.partition(": ")[2].partition(" ")[0] for text in caught.value.steps] == rules
        require_readable(caught.value)
        assert contents(db) == before
        if not case.allow:
            return
    report = db.apply(allow=case.allow)
    assert report.complete
    assert db.plan().is_current
    assert [found.primary_key for found in db.check().findings] == spoilt
    for key in spoilt:
        assert db[case.model].remove(key)
    assert db.check().ok
    assert audit(read_store(db.kv), [spec_of(case.model)]) == []
    assert len(db[case.model].all().to_list()) == case.records - len(spoilt)
    again = [step for step in steps_of(db.apply(allow=case.allow).plan) if step[1] != "records_outdated"]
    assert again == [step for step in case.steps if step[1] == "field_removed"]


def test_a_field_without_a_default_is_allowed_once_no_record_is_left_that_lacks_it(opened):
    old = opened(First)
    old[First].create(**user(1))
    db = opened(Required)
    assert [rule for _, rule in steps_of(db.plan())] == ["field_required"]
    old[First].remove(1)
    assert [rule for _, rule in steps_of(db.plan())] == ["field_unmissed"]
    assert db.apply().complete
    assert db.plan().is_current


def test_states_of_builds_that_were_begun_dropped_or_are_pending(opened):
    old = opened(First)
    old[First].bulk_create([First(**user(n, color="red")) for n in range(3)])
    db = opened(UniqueColor)
    assert steps_of(db.plan()) == [("color", "index_changed")]

    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        db.apply(progress=stop)
    assert steps_of(db.plan()) == [("color", "index_unfinished")]
    report = db.apply()
    assert not report.complete
    assert "NOT COMPLETE" in str(report)
    assert steps_of(db.plan()) == [("color", "index_pending")]
    for n in (1, 2):
        db[UniqueColor].patch(n, color=f"color-{n}")
    assert db.apply().complete
    assert db.plan().is_current
    assert steps_of(old.plan()) == [("color", "index_superseded")]
    with pytest.raises(SchemaChangeRefusedError):
        old.apply()


class TextKey(KvModel, collection="users"):
    id: PrimaryKey[str]
    email: Unique[str]
    color: Indexed[str]
    name: str = ""


class Drawn(Same, collection="users"):
    token: ULID = Field(default_factory=ULID)


def test_details_say_what_differs_where_names_do_not(opened):
    opened(First)[First].create(**user(1))
    details = [step.detail for model in (TextKey, OtherKey, Drawn) for step in opened(model).plan().steps]
    assert details == [
        "id: int -> id: str",
        "id: int -> email: str",
        "ulid; its default_factory may return a different value at every read, so it is not used for stored records",
    ]


def test_a_drop_that_was_interrupted_is_a_step(opened):
    old = opened(First)
    old[First].bulk_create([First(**user(n)) for n in range(3)])
    db = opened(Fewer)

    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(SchemaMismatchError):
        db[Fewer].patch(1, name="x")
    with pytest.raises(KeyboardInterrupt):
        db.apply(allow=("drop_index",), progress=stop)
    assert steps_of(db.plan()) == [("color", "index_dropping")]
    db[Fewer].patch(1, name="x")
    assert db.apply().complete
    assert db.plan().is_current
    assert not any("by_color" in str(entry.key[0]) for entry in db.kv.list(prefix=()))


def test_a_release_of_a_lower_version_is_told_so_and_may_not_apply(opened):
    new = opened(Higher)
    old = opened(First)
    assert steps_of(old.plan()) == [(None, "schema_version_lower")]
    with pytest.raises(SchemaChangeRefusedError):
        old.apply()
    assert new.plan().is_current


def test_a_collection_of_a_store_that_is_only_read_is_planned(tmp_path):
    path = str(tmp_path / "app.db")
    with Database(path, models=[City]):
        pass
    with Database(path, models=[First, City], readonly=True) as db:
        assert steps_of(db.plan()) == [(None, "collection_added")]
        assert steps_of(db.plan(City)) == []


def test_values_of_a_removed_field_are_carried_until_they_are_forgotten(opened):
    old = opened(First)
    old[First].bulk_create([First(**user(n)) for n in range(5)])
    db = opened(Without)
    db[Without].patch(1, color="green")
    assert db.kv.get(("users", 1)).value["name"] == "name-1"
    assert db.plan().is_current
    assert db.apply().migrations == ()
    (migrated,) = db.apply(allow=("forget_field",)).migrations
    assert (migrated.scanned, migrated.written, migrated.complete) == (5, 5, True)
    assert all("name" not in db.kv.get(("users", n)).value for n in range(5))
    assert db.plan().steps == ()
    assert steps_of(old.plan()) == [("name", "field_added")]
    assert [found.name for found in old[First].all()] == [""] * 5
    assert db.check().ok


def test_every_rule_has_a_case_and_a_line_in_the_guide():
    seen = {rule for case in CASES.values() for _, rule in case.steps}
    seen |= {
        "upgrade_missing",
        "index_unfinished",
        "index_pending",
        "index_unbuilt",  # tests/evolution/test_records_before_models.py
        "index_superseded",
        "index_dropping",
        "schema_version_lower",
        "collection_dropping",  # tests/evolution/test_drop_collection.py
        "description_unknown",  # tests/evolution/test_unknown_descriptions.py
        "field_unmissed",
        "field_of_class",  # tests/shapes/test_union_releases.py
        "reference_added",  # tests/references/test_existing_records.py
        "reference_changed",
        "on_delete_changed",  # tests/references/test_on_delete.py
        "history_added",  # tests/history/test_evolution.py
        "history_unfinished",
        "history_changed",
        "history_undeclared",
        "history_dropping",
        "field_encrypted",  # tests/encryption/test_changes_of_form.py
        "field_encrypted_unversioned",
        "field_decrypted",
        "field_decrypted_unversioned",
        "encryption_unfinished",
    }
    assert seen | {"collection_added"} == RULES.keys()
    guide = GUIDE.read_text("utf-8")
    for name, rule in RULES.items():
        allow = f"`{rule.allow}`" if rule.allow else ""
        assert f"| `{name}` | {rule.kind.value} | {rule.reason} | {rule.action} | {allow} |" in guide


def test_a_plan_is_shown_step_by_step_and_can_be_pickled(opened):
    old = opened(First)
    old[First].bulk_create([First(**user(n)) for n in range(2)])
    db = opened(Fewer, City)
    assert str(db.plan()) == (
        "REFUSED        users.color  index_undeclared: the store has an index that is not declared, so this process "
        "must not write\n               -> declare it; with allow it is dropped (also raise schema_version, or an "
        "older release may build it again) [allow='drop_index']"
    )
    assert pickle.loads(pickle.dumps(db.plan())) == db.plan()
    assert steps_of(db.plan(City)) == []
    allowed = db.plan().allowing(("drop_index",))
    assert allowed.refused == ()
    assert allowed.steps[0].kind is StepKind.SAFE


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.apply(allow="drop_index"),
        lambda db: db.apply(allow=("drop",)),
        lambda db: db.apply(allow=(1,)),
        lambda db: db.apply(allow=3),
        lambda db: db.apply(City),
        lambda db: db.apply(throttle=0),
        lambda db: db.apply(throttle=True),
        lambda db: db.apply(progress=1),
        lambda db: db.plan(City),
        lambda db: db.plan(sample=-1),
        lambda db: db.plan(sample=True),
        lambda db: db.apply(sample=1.5),
        lambda db: db.apply(sample="all"),
        lambda db: db.migrate(City),
        lambda db: db.migrate(First, forget="name"),
        lambda db: db.migrate(First, forget=("name",)),
        lambda db: db.migrate(First, forget=(1,)),
        lambda db: db.migrate(First, forget=("$kv",)),
        lambda db: db.build_indexes(throttle=-1),
        lambda db: db.violations(City),
        lambda db: db.violations(First, limit=0),
        lambda db: db.resolve(City),
    ],
)
def test_arguments_that_make_no_sense_are_refused_before_anything_is_written(opened, call):
    db = opened(First)
    before = contents(db)
    with pytest.raises(InvalidArgumentError) as caught:
        call(db)
    require_readable(caught.value)
    assert contents(db) == before


def test_an_index_that_nobody_knows_has_no_violations_to_look_at(opened):
    db = opened(First)
    for call in (lambda: db.violations(First, "colour"), lambda: db.resolve(First, "colour")):
        with pytest.raises(UnknownFieldError) as caught:
            call()
        require_readable(caught.value)


def test_violations_say_what_is_in_the_way_of_whom_and_are_resolved(opened):
    old = opened(First)
    old[First].bulk_create(
        [First(**user(n, color=color)) for n, color in enumerate(["a", "b", "a", "a", "x" * 3000][:4])]
    )
    db = opened(UniqueColor)
    db.apply()
    found = db.violations(UniqueColor)
    assert [(one.index, one.key, one.kind, one.values, one.holder) for one in found] == [
        ("color", 2, "duplicate", ("a",), 0),
        ("color", 3, "duplicate", ("a",), 0),
    ]
    assert str(found[0]) == "users.color: 2 duplicate with 0 of ('a',)"
    assert db.violations(UniqueColor, "color", limit=1) == found[:1]
    assert db.violations(UniqueColor, "email") == []
    (report,) = db.resolve(UniqueColor)
    assert report.state is IndexState.PENDING
    db[UniqueColor].patch(3, color="c")
    db[UniqueColor].remove(0)
    (one,) = db.violations(UniqueColor)
    assert (one.key, one.holder) == (2, None)
    (report,) = db.resolve(UniqueColor, "color")
    assert (report.state, report.violations) == (IndexState.READABLE, ())
    assert db.resolve(UniqueColor) == ()
    assert db[UniqueColor].get(color="a").id == 2
    assert db.check().ok


class Compound(Same, collection="users"):
    class Meta:
        indexes: ClassVar = (Index("color", "-name"), Index("name", "color"))


def test_a_throttle_and_a_listener_pace_builds_migrations_and_drops(opened):
    old = opened(First)
    old[First].bulk_create([First(**user(n)) for n in range(60)])
    db = opened(Compound)
    seen: list[Any] = []
    reports = db.build_indexes(progress=seen.append, throttle=2_000)
    assert [report.scanned for report in reports] == [60, 60]
    assert [(one.step, one.index, one.scanned) for one in seen] == [
        ("build", "color_name", 60),
        ("build", "name_color", 60),
    ]
    seen.clear()
    db.apply(progress=seen.append)
    assert seen == []
    db.migrate(Compound, forget=("name2",), progress=seen.append)
    assert [(one.step, one.scanned, one.written) for one in seen] == [("migrate", 60, 0)]
