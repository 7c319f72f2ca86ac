"""Names that nobody knows: fields, lookups, options, models, URLs. Each is named, with what there is instead."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    Field,
    Index,
    Indexed,
    InvalidArgumentError,
    InvalidCursorError,
    InvalidValueError,
    KvModel,
    Limits,
    ModelDefinitionError,
    NoUsableIndexError,
    PrimaryKey,
    RetryPolicy,
    Unique,
    UniqueConstraint,
    UnknownFieldError,
    UnknownLookupError,
    ValueTooLargeError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.robustness.models import MODELS, Member, Stranger, ada, refused, stored_rows


@pytest.fixture
def db():
    with Database("memory://", models=MODELS) as opened:
        opened[Member].insert(ada())
        yield opened


@pytest.mark.parametrize(
    "call",
    [
        lambda users: users.filter(colour="red"),
        lambda users: users.filter(colour__gte="red"),
        lambda users: users.exclude(colour="red"),
        lambda users: users.order_by("colour"),
        lambda users: users.order_by("-colour"),
        lambda users: users.get(colour="red"),
        lambda users: users.get_or_none(colour="red"),
        lambda users: users.patch(1, colour="red"),
        lambda users: users.filter(color="red").filter(colour="blue"),
    ],
    ids=[
        "filter",
        "filter with a lookup",
        "exclude",
        "order_by",
        "order_by down",
        "get",
        "get_or_none",
        "patch",
        "twice",
    ],
)
def test_an_unknown_field_is_refused_with_a_suggestion(db, call):
    before = stored_rows(db)
    refused(lambda: call(db[Member]), UnknownFieldError, model="Member", field="colour", suggestion="color")
    assert stored_rows(db) == before


def test_an_unknown_field_of_a_typed_expression_is_an_attribute_error_of_python():
    with pytest.raises(AttributeError):
        Member.colour  # type: ignore[attr-defined]


def test_a_stored_field_is_patched_by_its_name_and_not_by_its_alias():
    class Aliased(KvModel, collection="aliased"):
        id: PrimaryKey[int]
        plain: str = Field(alias="fancy")

    with Database("memory://", models=[Aliased]) as db:
        db[Aliased].create(id=1, fancy="x")
        refused(lambda: db[Aliased].patch(1, fancy="y"), UnknownFieldError, field="fancy")
        assert db[Aliased].patch(1, plain="y").plain == "y"


def test_an_unknown_lookup_is_refused_with_those_that_exist(db):
    raised = refused(
        lambda: db[Member].filter(color__liek="r"), UnknownLookupError, model="Member", field="color", lookup="liek"
    )
    assert "startswith" in str(raised)


def test_an_operand_of_the_wrong_type_names_the_field(db):
    wrong: list[dict[str, Any]] = [{"color": 3}, {"score__gt": "high"}, {"id__in": ["1"]}, {"email": b"ada@x.org"}]
    for lookups in wrong:
        field = next(iter(lookups)).partition("__")[0]
        refused(partial(answer, db, lookups), InvalidValueError, field=field)


def test_a_query_that_no_index_serves_says_which_line_to_add(db):
    raised = refused(lambda: db[Member].filter(note="x").to_list(), NoUsableIndexError, filters=("note",))
    assert 'Index("note")' in str(raised.hint)
    assert "allow_scan()" in str(raised.hint)


def answer(db: Database, lookups: dict[str, Any]) -> list[Member]:
    return db[Member].filter(**lookups).to_list()


@pytest.mark.parametrize("cursor", ["", "x", "!!!", "AAAA", 3, b"AAAA", "\ud800"], ids=repr)
def test_a_cursor_that_was_not_handed_out_is_refused(db, cursor):
    refused(lambda: db[Member].page(after=cursor), InvalidCursorError)


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "10", None], ids=repr)
def test_a_page_size_that_is_none_is_refused(db, size):
    raised = refused(lambda: db[Member].page(size=size), (InvalidArgumentError, InvalidValueError))
    assert "size" in str(raised)


@pytest.mark.parametrize("item", [-1, slice(-3, None), slice(None, None, 2), slice(0, 10, 0), "x", 1.5], ids=repr)
def test_a_slice_that_cannot_be_read_forwards_is_refused(db, item):
    refused(lambda: db[Member].all()[item], (InvalidArgumentError, InvalidValueError))


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "10"], ids=repr)
def test_a_batch_size_that_is_none_is_refused_before_anything_is_written(db, size):
    before = stored_rows(db)
    many = [Member(id=2, email="b@x.org", color="red")]
    refused(lambda: db[Member].bulk_create(many, batch_size=size), InvalidArgumentError, argument="batch_size")
    assert stored_rows(db) == before


@pytest.mark.parametrize("choice", ["updte", "ERROR", "", None, True], ids=repr)
def test_an_unknown_answer_to_conflicts_is_refused(db, choice):
    many = [Member(id=2, email="b@x.org", color="red")]
    raised = refused(
        lambda: db[Member].bulk_create(many, on_conflict=choice), InvalidArgumentError, argument="on_conflict"
    )
    assert "error" in raised.expected
    assert "ignore" in raised.expected
    assert db[Member].count() == 1


def test_arguments_that_are_not_several_things_are_refused(db):
    one_model: Any = Member
    number: Any = 3
    refused(lambda: db[Member].bulk_create(3), InvalidArgumentError, argument="objs")
    refused(lambda: db[Member].in_bulk(3), InvalidArgumentError, argument="keys")
    refused(partial(Database, "memory://", models=one_model), InvalidArgumentError, argument="models")
    refused(partial(Database, "memory://", models=number), InvalidArgumentError, argument="models")


def test_a_function_that_cannot_be_called_is_refused(db):
    refused(lambda: db[Member].mutate(1, "note"), InvalidArgumentError, argument="function")


def test_a_lookup_that_names_no_unique_key_cannot_decide_a_race(db):
    raised = refused(lambda: db[Member].get_or_create(color="red"), InvalidArgumentError, argument="lookups")
    assert raised.expected == (("id",), ("email",))
    refused(lambda: db[Member].get(), InvalidArgumentError, argument="lookups")


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db[Stranger],
        lambda db: db.repository(Stranger),
        lambda db: db.build_indexes(Stranger),
        lambda db: db.drop_index(Stranger, "x"),
        lambda db: db.check(Stranger),
    ],
    ids=["[]", "repository", "build_indexes", "drop_index", "check"],
)
def test_a_model_that_the_database_does_not_know_is_refused_with_those_that_it_does(db, call):
    refused(lambda: call(db), InvalidArgumentError, argument="model", value="Stranger", expected=("Member", "Seat"))


@pytest.mark.parametrize("thing", [int, "Member", 3, None, KvModel], ids=repr)
def test_what_is_no_model_is_refused(db, thing):
    refused(lambda: db[thing], InvalidArgumentError, argument="model")
    refused(lambda: Database("memory://", models=[thing]), ModelDefinitionError)


def test_unknown_arguments_of_the_life_cycle_are_refused(db):
    refused(lambda: db.check(repair="al"), InvalidArgumentError, argument="repair", expected=(False, True, "all"))
    names: list[Any] = [3, "", None, "\ud800"]
    for name in names:
        refused(partial(db.drop_index, Member, name), InvalidArgumentError, argument="name")
        refused(partial(db.outcome, name), InvalidArgumentError, argument="token")
    assert db.drop_index(Member, "never_declared") is False


OPTIONS: dict[str, Any] = {
    "an unknown option": ({"retries": 3}, "retries"),
    "an option of another engine": ({"busy_timeout": 3}, "busy_timeout"),
    "a number for a retry policy": ({"retry": 3}, "retry"),
    "a text for a flag": ({"readonly": "no"}, "readonly"),
    "a number for a flag": ({"require_current": 1}, "require_current"),
    "a number for a clock": ({"clock": 3}, "clock"),
    "an unknown codec": ({"codec": "pickle"}, "codec"),
    "an unknown durability": ({"durability": "sometimes"}, "durability"),
    "limits that are none": ({"limits": 4096}, "limits"),
    "a snapshot age that is none": ({"snapshot_max_age": "long"}, "snapshot_max_age"),
}


@pytest.mark.parametrize("options,argument", OPTIONS.values(), ids=OPTIONS)
async def test_an_option_that_makes_no_sense_is_refused_by_both_databases(options, argument):
    refused(lambda: Database("memory://", models=MODELS, **options), InvalidArgumentError, argument=argument)
    with pytest.raises(InvalidArgumentError) as caught:
        async with AsyncDatabase("memory://", models=MODELS, **options):
            pass
    assert caught.value.argument == argument


def test_an_option_of_the_file_that_makes_no_sense_is_refused_and_no_file_is_made(tmp_path):
    path = tmp_path / "app.db"
    wrong: list[dict[str, Any]] = [
        {"busy_timeout": "5"},
        {"busy_timeout": -1},
        {"busy_timeout": True},
        {"busy_timeot": 5},
    ]
    for options in [*wrong, {"busy_timeot": 5}]:
        refused(partial(Database, path, **options), InvalidArgumentError, argument=next(iter(options)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [{"attempts": 0}, {"attempts": 1.5}, {"attempts": True}, {"attempts": "5"}]
    + [{name: value} for name in ("deadline_s", "initial_s", "cap_s") for value in (-1, float("nan"), "1", None, True)],
    ids=repr,
)
def test_a_retry_policy_that_makes_no_sense_is_refused(options):
    refused(lambda: RetryPolicy(**options), InvalidArgumentError, argument=next(iter(options)))


@pytest.mark.parametrize(
    "url,suggestion",
    [
        ("mysql://localhost/app", None),
        ("sqlit:///app.db", "sqlite://"),
        ("memry://", "memory://"),
        (":memory:", "sqlite://:memory:"),
        ("sqlite://app.db", "sqlite:///app.db"),
        ("sqlite:///app.db?mode=ro", None),
        ("", None),
        (3, None),
        (None, None),
        ("a\0b", None),
    ],
    ids=repr,
)
async def test_a_url_that_no_engine_knows_is_refused_by_both_databases(url, suggestion):
    refused(lambda: Database(url), InvalidArgumentError, argument="url", suggestion=suggestion)
    with pytest.raises(InvalidArgumentError) as caught:
        await AsyncDatabase(url).open()
    assert caught.value.suggestion == suggestion


def test_a_database_over_an_engine_checks_its_declarations_too():
    options: dict[str, Any] = {"retry": RetryPolicy(), "readonly": False, "must_be_current": False}
    refused(partial(DatabaseCore, [int], **options), ModelDefinitionError)
    engine = MemoryEngine()
    db = Database.from_engine(engine, DatabaseCore(MODELS, **options))
    refused(lambda: db[Stranger], InvalidArgumentError)
    db.close()


def test_options_of_a_class_that_do_not_exist_are_refused_when_it_is_created():
    def keyword():
        class A(KvModel, colection="a"):
            id: PrimaryKey[int]

    def meta():
        class A(KvModel):
            id: PrimaryKey[int]

            class Meta:
                index = (Index("id"),)

    def field_option():
        class A(KvModel):
            id: PrimaryKey[int]
            n: int = Field(defualt=3)

    def unknown_column():
        class A(KvModel):
            id: PrimaryKey[int]
            color: str

            class Meta:
                indexes = (Index("colour"),)

    refused(keyword, ModelDefinitionError, option="colection", suggestion="collection")
    refused(meta, ModelDefinitionError, option="index", suggestion="indexes")
    refused(field_option, ModelDefinitionError, option="defualt", suggestion="default")
    raised = refused(unknown_column, ModelDefinitionError, model="A", field="colour")
    assert raised.suggestion == "color"


def test_declarations_that_cannot_work_are_refused_when_the_class_is_created():
    def no_primary_key():
        class A(KvModel):
            n: int

    def optional_primary_key():
        class A(KvModel):
            id: PrimaryKey[int | None]

    def unindexable():
        class A(KvModel):
            id: PrimaryKey[int]
            tags: Indexed[list[str]]

    def reserved_field():
        class A(KvModel):
            id: PrimaryKey[int]
            versionstamp: str

    def same_index_twice():
        class A(KvModel):
            id: PrimaryKey[int]
            email: Unique[str]

            class Meta:
                indexes = (UniqueConstraint("email"),)

    def reserved_collection():
        class A(KvModel, collection="__kvmodels__"):
            id: PrimaryKey[int]

    for declaration in (
        no_primary_key,
        optional_primary_key,
        unindexable,
        reserved_field,
        same_index_twice,
        reserved_collection,
    ):
        refused(declaration, ModelDefinitionError, model="A")


def test_limits_of_another_store_are_data_and_the_error_names_whose_they_are():
    with Database("memory://", models=MODELS, limits=Limits.DENO) as db:
        too_much: dict[str, Any] = {"id": 1, "email": "x", "color": "y", "note": "z" * 70_000}
        expected: dict[str, Any] = {"limits": "DENO", "maximum": 65_536, "key": ("members", 1)}
        refused(lambda: db[Member].create(**too_much), ValueTooLargeError, **expected)
