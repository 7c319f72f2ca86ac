"""Preparing, accepting and decoding: what is validated when, what is proved before a write, what a record may lack."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    ValidationError,
    WrapValidator,
    computed_field,
    field_validator,
    model_validator,
)

from kvmodels.core.ulid import ULID
from kvmodels.errors import (
    DecodeError,
    InvalidValueError,
    ModelDefinitionError,
    NonIdempotentValidatorError,
    UnknownFieldError,
)
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.record_codec import apply_changes
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.annotations import Stored
from kvmodels.schema.declare.markers import Field, Indexed, PrimaryKey, Unique
from kvmodels.schema.instances import ObjectState, set_state


class Address(BaseModel):
    street: str
    zip: int = 0


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str] = Field(alias="Mail", max_length=20)
    age: Indexed[int | None] = Field(default=None)
    score: Indexed[float] = Field(default=0.0)
    tags: list[str] = []
    address: Address | None = None
    secret: pydantic.SecretStr = Field(default=pydantic.SecretStr("s"), exclude=True)


def ada(**values):
    return User(**{"id": 1, "Mail": "ada@x.org", **values})


# --- prepare ----------------------------------------------------------------------------------------------------------


def test_a_document_holds_every_field_by_name_whatever_aliases_and_exclude_say():
    assert schema_of(User).prepare(ada()).document == {
        "id": 1,
        "email": "ada@x.org",
        "age": None,
        "score": 0.0,
        "tags": [],
        "address": None,
        "secret": "s",
    }


def test_present_values_are_validated_before_a_write():
    user = ada()
    user.age = "abc"
    with pytest.raises(ValidationError) as caught:
        schema_of(User).prepare(user)
    assert caught.value.errors()[0]["loc"] == ("age",)


def test_changed_values_of_nested_objects_are_validated_too():
    user = ada(address=Address(street="s"))
    user.address.zip = "abc"
    with pytest.raises(ValidationError) as caught:
        schema_of(User).prepare(user)
    assert caught.value.errors()[0]["loc"] == ("address", "zip")


def test_preparing_leaves_the_object_alone_and_accepting_puts_the_validated_values_in():
    user = ada()
    user.age = "36"
    schema = schema_of(User)
    prepared = schema.prepare(user)
    assert user.age == "36"
    assert prepared.values["age"] == prepared.document["age"] == 36
    schema.accept(user, prepared)
    assert user.age == 36


def test_a_deleted_attribute_is_filled_in_by_its_default():
    user = ada()
    del user.age
    schema = schema_of(User)
    prepared = schema.prepare(user)
    schema.accept(user, prepared)
    assert user.age is None


def test_accepting_keeps_the_identity_of_what_validation_left_equal():
    user = ada(tags=["a"], address=Address(street="s"))
    tags, address = user.tags, user.address
    schema = schema_of(User)
    schema.accept(user, schema.prepare(user))
    assert user.tags is tags
    assert user.address is address
    address.__dict__["zip"] = "7"
    schema.accept(user, schema.prepare(user))
    assert user.address is not address
    assert user.address.zip == 7


def test_the_document_and_the_object_do_not_share_lists_after_packing_time():
    schema = schema_of(User)
    user = ada(tags=["a"])
    document = schema.prepare(user).document
    user.tags.append("b")
    assert document["tags"] == ["a"]


def test_accepting_works_on_frozen_models_and_with_validate_assignment():
    class Frozen(KvModel, frozen=True):
        id: PrimaryKey[int]
        n: int = 0

    class Watched(KvModel, validate_assignment=True):
        id: PrimaryKey[int]
        n: int = 0

    for model in (Frozen, Watched):
        instance = model(id=1)
        instance.__dict__["n"] = "5"
        schema = schema_of(model)
        schema.accept(instance, schema.prepare(instance))
        assert instance.n == 5


def test_private_attributes_computed_fields_and_cached_properties_are_not_stored():
    class Thing(KvModel, extra="forbid"):
        id: PrimaryKey[int]
        _secret: int = 5

        @computed_field
        def double(self) -> int:
            return 2 * self.id

        @cached_property
        def triple(self) -> int:
            return 3 * self.id

    thing = Thing(id=2)
    thing._secret = 6
    assert thing.triple == 6
    schema = schema_of(Thing)
    prepared = schema.prepare(thing)
    schema.accept(thing, prepared)
    assert prepared.document == {"id": 2}
    assert thing._secret == 6


def test_the_primary_key_is_that_of_the_validated_values():
    class Thing(KvModel):
        id: PrimaryKey[int]
        part: PrimaryKey[str]

    thing = Thing(id=1, part="a")
    thing.__dict__["id"] = "2"
    schema = schema_of(Thing)
    assert schema.prepare(thing).primary_key == (2, "a")
    assert schema.primary_key_of(thing) == ("2", "a")


def test_only_objects_of_exactly_the_model_are_prepared():
    class Admin(User):
        level: int = 0

    for other in (Admin(id=1, Mail="a"), Address(street="s"), None):
        with pytest.raises(InvalidValueError, match="this is not an object of the model") as caught:
            schema_of(User).prepare(other)
        assert (caught.value.model, caught.value.type) == ("User", type(other).__name__)


def test_an_object_that_contains_itself_is_refused():
    class Node(KvModel):
        id: PrimaryKey[int]
        next: "Node | None" = None

    node = Node(id=1)
    node.next = node
    with pytest.raises(InvalidValueError, match="contains itself or is nested too deeply"):
        schema_of(Node).prepare(node)


@pytest.mark.parametrize(("field", "value"), [("score", math.nan), ("email", "\ud800")])
def test_what_a_column_cannot_hold_names_model_and_field(field, value):
    schema = schema_of(User)
    for pack in (schema.indexes[field].columns[0].codec.pack, schema.column_codecs[field].pack_stored):
        with pytest.raises(InvalidValueError) as caught:
            pack(value)
        assert (caught.value.model, caught.value.field) == ("User", field)


def test_extra_fields_are_stored_and_reserved_names_refused():
    class Open(KvModel, extra="allow"):
        id: PrimaryKey[int]

    schema = schema_of(Open)
    thing = Open.model_validate({"id": 1, "colour": "red"})
    document = schema.prepare(thing).document
    assert document == {"id": 1, "colour": "red"}
    again, unknown = schema.decode(document, (1,))
    assert (again, unknown) == (thing, {})
    with pytest.raises(InvalidValueError, match="the name of an extra field is reserved") as caught:
        schema.prepare(Open.model_validate({"id": 1, "$kv": 1}))
    assert caught.value.field == "$kv"


def test_validated_extra_fields_are_accepted():
    class Open(KvModel, extra="allow"):
        __pydantic_extra__: dict[str, int]
        id: PrimaryKey[int]

    schema = schema_of(Open)
    thing: Any = Open.model_validate({"id": 1, "n": 1})
    thing.n = "5"
    schema.accept(thing, schema.prepare(thing))
    assert thing.n == 5


# --- idempotent validators --------------------------------------------------------------------------------------------


def prefixed(value: Any) -> str:
    return f"x{value}"


def appended(value: list[int]) -> list[int]:
    value.append(1)
    return value


@dataclass
class Counter:
    n: int

    def __post_init__(self):
        self.n += 1


class Prefixing(BaseModel):
    v: str

    @field_validator("v")
    @classmethod
    def prefix(cls, value: str) -> str:
        return prefixed(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Annotated[str, AfterValidator(prefixed)], "a"),
        (Annotated[str, BeforeValidator(prefixed)], "a"),
        (Annotated[str, PlainValidator(prefixed)], "a"),
        (Annotated[str, WrapValidator(lambda value, handler: prefixed(handler(value)))], "a"),
        (list[Annotated[str, AfterValidator(prefixed)]], ["a"]),
        (dict[str, Annotated[str, AfterValidator(prefixed)] | None], {"a": "b"}),
        (Annotated[list[int], AfterValidator(appended)], [0]),
        (Annotated[list, AfterValidator(appended)], [0]),
        (Annotated[int, AfterValidator(lambda value: not value)], 1),
        (Prefixing, {"v": "a"}),
        (list[Prefixing], [{"v": "a"}]),
        (Counter, Counter(1)),
    ],
)
def test_a_validator_that_changes_its_own_result_is_refused_before_a_write(annotation, value):
    class Thing(KvModel):
        id: PrimaryKey[int]
        v: annotation  # type: ignore[valid-type]

    thing = Thing(id=1, v=value)
    before = repr(thing)
    with pytest.raises(NonIdempotentValidatorError) as caught:
        schema_of(Thing).prepare(thing)
    assert (caught.value.model, caught.value.field) == ("Thing", "v")
    assert "trust_validators" in str(caught.value.hint)
    assert repr(thing) == before


def test_decorated_validators_of_the_model_are_proved_too():
    class ByField(KvModel):
        id: PrimaryKey[int]
        v: str = "a"

        @field_validator("v")
        @classmethod
        def prefix(cls, value: str) -> str:
            return prefixed(value)

    class ByModel(KvModel):
        id: PrimaryKey[int]
        v: int = 0

        @model_validator(mode="after")
        def count(self):
            self.__dict__["v"] += 1
            return self

    class ByInput(KvModel):
        id: PrimaryKey[int]
        v: int = 0

        @model_validator(mode="before")
        @classmethod
        def count(cls, data):
            data["v"] = data.get("v", 0) + 1
            return data

    class ByPostInit(KvModel):
        id: PrimaryKey[int]
        v: int = 0
        _private: int = 1

        def model_post_init(self, context):
            self.v += 1

    class ByInit(KvModel):
        id: PrimaryKey[int]
        v: int = 0

        def __init__(self, **data):
            data["v"] = data.get("v", 0) + 1
            super().__init__(**data)

    for model in (ByField, ByModel, ByInput, ByPostInit, ByInit):
        thing = model.model_validate({"id": 1, "v": "a" if model is ByField else 1})
        with pytest.raises(NonIdempotentValidatorError) as caught:
            schema_of(model).prepare(thing)
        assert (caught.value.model, caught.value.field) == (model.__name__, "v")


def test_a_validator_that_refuses_its_own_result_is_not_idempotent():
    def hashed(value: str) -> str:
        if value.startswith("$"):
            raise ValueError("hashed already")
        return f"${value}"

    class Account(KvModel):
        id: PrimaryKey[int]
        password: Annotated[str, AfterValidator(hashed)]

    account = Account.model_construct(id=1, password="x")
    with pytest.raises(NonIdempotentValidatorError, match="does not accept its own result") as caught:
        schema_of(Account).prepare(account)
    assert caught.value.field == "password"


def test_idempotent_validators_pass_and_trusted_ones_are_not_proved():
    calls = []

    def lower(value: str) -> str:
        calls.append(value)
        return value.lower()

    class Proved(KvModel):
        id: PrimaryKey[int]
        v: Annotated[str, AfterValidator(lower)]
        nan: float = math.nan

    class Trusted(Proved):
        class Meta:
            trust_validators = True

    for model, expected in ((Proved, 2), (Trusted, 1)):
        thing = model(id=1, v="A")
        calls.clear()
        assert schema_of(model).prepare(thing).document["v"] == "a"
        assert len(calls) == expected


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[str, pydantic.StringConstraints(strip_whitespace=True)],
        Annotated[int, Field(ge=0)],
        pydantic.PositiveInt,
        Annotated[str, pydantic.WithJsonSchema({})],
        pydantic.UUID4,
        pydantic.HttpUrl,
        ULID,
        Literal["a"],
        Address,
    ],
)
def test_types_without_functions_of_the_user_are_not_proved(annotation, monkeypatch):
    class Thing(KvModel):
        id: PrimaryKey[int]
        v: annotation | None = None  # type: ignore[valid-type]
        _private: int = 1

    schema = schema_of(Thing)
    monkeypatch.setattr("kvmodels.schema.compile.record_codec.deepcopy", None)
    assert schema.prepare(Thing(id=1)).document == {"id": 1, "v": None}


# --- decode -----------------------------------------------------------------------------------------------------------


class Late(KvModel, extra="forbid"):
    id: PrimaryKey[int]
    plain: int = 7
    numbers: list[int] = Field(default_factory=list)
    unique: set[int] = Field(default_factory=set)
    token: str = Field(default_factory=lambda: "random")
    required: str


def test_a_missing_field_has_its_plain_default_or_an_empty_container():
    late, unknown = schema_of(Late).decode({"id": 1, "token": "t", "required": "r"}, (1,))
    assert (late.plain, late.numbers, late.unique, unknown) == (7, [], set(), {})
    assert late.numbers is not schema_of(Late).decode({"id": 1, "token": "t", "required": "r"}, (1,))[0].numbers


@pytest.mark.parametrize("missing", ["token", "required"])
def test_a_missing_field_without_a_plain_default_says_to_give_it_one(missing):
    document = {"id": 1, "token": "t", "required": "r"}
    del document[missing]
    with pytest.raises(DecodeError, match="lacks a field that has no plain default") as caught:
        schema_of(Late).decode(document, (1,))
    assert (caught.value.model, caught.value.field, caught.value.key) == ("Late", missing, (1,))
    assert "give the field a plain default" in str(caught.value.hint)
    assert "write an upgrade that fills it" in str(caught.value.hint)


def test_a_missing_field_of_a_nested_object_is_judged_alike():
    class Inner(BaseModel):
        plain: int = 1
        token: int = Field(default_factory=lambda: 5)

    class Thing(KvModel):
        id: PrimaryKey[int]
        inner: Inner

    schema = schema_of(Thing)
    assert schema.decode({"id": 1, "inner": {"token": 2}}, (1,))[0].inner.plain == 1
    with pytest.raises(DecodeError) as caught:
        schema.decode({"id": 1, "inner": {"plain": 2}}, (1,))
    assert caught.value.field == "inner"
    assert "lacks a field" in str(caught.value.reason)


def test_unknown_stored_fields_are_handed_out_and_carried_through_a_rewrite():
    schema = schema_of(Late)
    document = {"id": 1, "token": "t", "required": "r", "gone": {"a": 1}}
    late, unknown = schema.decode(dict(document), (1,))
    assert unknown == {"gone": {"a": 1}}
    set_state(late, ObjectState(bytes(10), b"", 4, None, (1,), unknown))
    late.plain = 8
    prepared = schema.prepare(late)
    assert prepared.document == {**document, "plain": 8, "numbers": [], "unique": set()}
    assert prepared.unknown == unknown


def test_unknown_fields_are_extras_of_a_model_that_allows_them():
    class Open(KvModel, extra="allow"):
        id: PrimaryKey[int]

    thing, unknown = schema_of(Open).decode({"id": 1, "gone": 2}, (1,))
    assert (thing.gone, unknown) == (2, {})


def test_decoding_does_not_change_the_document():
    class Thing(KvModel):
        id: PrimaryKey[ULID]
        v: int = 1

        @model_validator(mode="before")
        @classmethod
        def touch(cls, data):
            data["v"] = 2
            return data

    document = {"id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "v": 1}
    schema_of(Thing).decode(document, (1,))
    assert document == {"id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "v": 1}


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"age": "abc"}, "age", "int_parsing"),
        ({"email": "x" * 21}, "email", "string_too_long"),
        ({"address": 5}, "address", "TypeError"),
        ({"address": {"zip": 1}}, "address", "a nested object lacks a field that has no plain default"),
        ({"tags": "a"}, "tags", "list_type"),
        ({"tags": ["a", 1]}, "tags", "string_type"),
    ],
)
def test_a_stored_value_that_is_not_valid_is_a_decode_error(changes, field, reason):
    schema = schema_of(User)
    document = schema.prepare(ada()).document | changes
    with pytest.raises(DecodeError, match="not a valid object of its model") as caught:
        schema.decode(document, (1,))
    error = caught.value
    assert (error.key, error.model, error.field, error.reason) == ((1,), "User", field, reason)
    assert error.hint
    assert "abc" not in str(error)


@pytest.mark.parametrize("raised", [KeyError("k"), RuntimeError("r"), ValueError("v")])
def test_a_reading_function_of_the_user_that_fails_is_a_decode_error(raised):
    def fail(value):
        raise raised

    class Thing(KvModel):
        id: PrimaryKey[int]
        v: Annotated[complex, Stored(str, fail)]

    with pytest.raises(DecodeError) as caught:
        schema_of(Thing).decode({"id": 1, "v": "1j"}, (1,))
    assert (caught.value.field, caught.value.reason) == ("v", type(raised).__name__)
    assert caught.value.__cause__ is raised


def test_a_model_validator_that_fails_on_read_has_no_field():
    class Thing(KvModel):
        id: PrimaryKey[int]

        @model_validator(mode="after")
        def never(self):
            raise ValueError("no")

    with pytest.raises(DecodeError) as caught:
        schema_of(Thing).decode({"id": 1}, (1,))
    assert (caught.value.field, caught.value.reason) == (None, "value_error")


# --- schema versions --------------------------------------------------------------------------------------------------


class Second(KvModel):
    id: PrimaryKey[int]

    class Meta:
        schema_version = 2


class First(KvModel):
    id: PrimaryKey[int]


def test_a_schema_version_above_one_is_stored_in_every_record():
    schema = schema_of(Second)
    document = schema.prepare(Second(id=1)).document
    assert document == {"id": 1, "$kv": {"v": 2}}
    assert schema.decode(document, (1,)) == (Second(id=1), {})
    assert schema_of(First).prepare(First(id=1)).document == {"id": 1}


def test_records_of_older_versions_are_read_and_newer_ones_refused():
    assert schema_of(Second).decode({"id": 1}, (1,))[0] == Second(id=1)
    with pytest.raises(DecodeError, match="another schema version") as caught:
        schema_of(First).decode({"id": 1, "$kv": {"v": 2}}, (1,))
    assert (caught.value.field, caught.value.reason) == ("$kv", "stored 2, declared 1")


@pytest.mark.parametrize("reserved", [5, {"v": "2"}, {"v": True}, {"v": 0}, []])
def test_damaged_reserved_data_is_a_decode_error(reserved):
    with pytest.raises(DecodeError, match="another schema version"):
        schema_of(Second).decode({"id": 1, "$kv": reserved}, (1,))


def test_reserved_data_that_this_version_does_not_know_is_carried():
    schema = schema_of(Second)
    second, unknown = schema.decode({"id": 1, "$kv": {"v": 2, "x": [1]}}, (1,))
    assert unknown == {"$kv": {"x": [1]}}
    set_state(second, ObjectState(bytes(10), b"", 4, None, (1,), unknown))
    assert schema.prepare(second).document == {"id": 1, "$kv": {"v": 2, "x": [1]}}


# --- changes ----------------------------------------------------------------------------------------------------------


def test_changes_are_made_by_field_name_and_validated_when_prepared():
    schema = schema_of(User)
    user = ada()
    apply_changes(schema, user, {"email": "new@x.org", "age": "5"})
    assert schema.prepare(user).values["age"] == 5
    assert user.model_fields_set == {"id", "email", "age"}


@pytest.mark.parametrize(("name", "suggestion"), [("emial", "email"), ("Mail", "email"), ("pk", None)])
def test_a_change_of_an_unknown_field_is_refused_whole(name, suggestion):
    user = ada()
    with pytest.raises(UnknownFieldError) as caught:
        apply_changes(schema_of(User), user, {"age": 5, name: "x"})
    assert (caught.value.field, caught.value.suggestion) == (name, suggestion)
    assert user.age is None


def test_changes_reach_frozen_models_and_extra_fields():
    class Open(KvModel, frozen=True, extra="allow"):
        id: PrimaryKey[int]
        n: int = 0

    thing: Any = Open(id=1)
    apply_changes(schema_of(Open), thing, {"n": 5, "more": 6})
    assert (thing.n, thing.more) == (5, 6)


def test_abstract_models_cannot_be_encoded():
    class Base(KvModel, abstract=True):
        n: int = 1

    with pytest.raises(ModelDefinitionError, match="abstract"):
        _ = Base().pk


def test_the_configuration_of_the_model_decides_on_extra_input_not_on_reading():
    class Strictest(KvModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        id: PrimaryKey[int]
        inner: Address | None = None

    schema = schema_of(Strictest)
    thing = Strictest(id=1, inner=Address(street="s"))
    document = schema.prepare(thing).document | {"gone": 1}
    assert schema.decode(document, (1,)) == (thing, {"gone": 1})
