"""Declarations of model classes, and the error of each wrong one when the class is created."""

from typing import Annotated, Any, ClassVar, Literal

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, create_model

from kvmodels.core.values import KeyNumber
from kvmodels.errors import KvModelsError, ModelDefinitionError
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.options import META_OPTIONS
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.annotations import Stored
from kvmodels.schema.declare.declarations import Index, UniqueConstraint
from kvmodels.schema.declare.markers import Field, Indexed, PrimaryKey, Unique


def declare(name="Thing", bases=(KvModel,), keywords=None, meta=None, **fields):
    """A class made of annotations; ``meta`` holds the options of its Meta."""
    namespace: dict[str, Any] = {"__annotations__": {"id": PrimaryKey[int], **fields}, "__module__": __name__}
    namespace["__qualname__"] = name
    if meta is not None:
        namespace["Meta"] = type("Meta", (), {"__qualname__": f"{name}.Meta", "__module__": __name__, **meta})
    metaclass: Any = type(KvModel)
    return metaclass(name, bases, namespace, **(keywords or {}))


def refused(message, **arguments):
    with pytest.raises(ModelDefinitionError, match=message) as caught:
        declare(**arguments)
    assert caught.value.hint
    assert caught.value.model == arguments.get("name", "Thing")
    return caught.value


MAYBE_A = Literal["a", None]  # noqa: PYI061 - the spelling is what is tested


class Child(BaseModel):
    n: int


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "collection"),
    [("User", "user"), ("BlogPost", "blog_post"), ("HTTPRequest2Log", "http_request2_log"), ("A", "a")],
)
def test_the_collection_is_the_class_name_in_snake_case(name, collection):
    assert schema_of(declare(name=name)).collection == collection


def test_the_collection_is_given_by_keyword_or_in_meta():
    assert schema_of(declare(keywords={"collection": "things"})).collection == "things"
    assert schema_of(declare(meta={"collection": "things"})).collection == "things"


def test_an_option_given_twice_is_refused():
    error = refused("an option is given twice", keywords={"collection": "a"}, meta={"collection": "b"})
    assert error.option == "collection"


@pytest.mark.parametrize("name", ["", "a~2", "__kvmodels__", "\ud800", 5, b"x"])
def test_collections_and_indexes_need_names_that_keys_can_hold(name):
    assert "collection" in refused("a name cannot be used in keys", keywords={"collection": name}).option
    assert "index" in refused("a name cannot be used in keys", v=Annotated[int, Unique(name=name)]).option


def test_indexes_are_named_after_their_fields():
    model = declare(
        a=Unique[int],
        b=Annotated[int, Indexed(name="other")],
        meta={"indexes": (Index("a", "-b"), UniqueConstraint("b", "a", name="both"))},
    )
    assert list(schema_of(model).indexes) == ["a", "other", "a_b", "both"]


def test_two_indexes_of_one_name_are_refused():
    assert refused("two indexes have one name", a=Unique[int], meta={"indexes": (Index("a"),)}).option == "a"


@pytest.mark.parametrize(
    "name", ["pk", "versionstamp", "is_persisted", "DoesNotExist", "copy", "json", "mro", "register"]
)
def test_a_field_named_like_an_attribute_of_every_model_is_refused(name):
    assert refused("a field has the name of an attribute of every model", **{name: int}).field == name


def test_a_field_that_hides_a_method_of_a_mixin_is_refused():
    class Mixin:
        def total(self):
            return 1

    with pytest.raises((ModelDefinitionError, UserWarning), match="total"):
        declare(bases=(Mixin, KvModel), total=int)


def test_a_method_that_hides_an_inherited_field_is_refused():
    class Counted(BaseModel):
        total: int = 0

    class Mixin:
        def total(self):
            return 1

    with pytest.raises(ModelDefinitionError, match="name of a method or attribute of a parent class") as caught:
        declare(bases=(Mixin, KvModel, Counted))
    assert caught.value.option == "Mixin.total"


def test_class_variables_may_have_any_name():
    class Thing(KvModel):
        id: PrimaryKey[int]
        copies: ClassVar[int] = 1

    assert Thing.copies == 1


def test_reserved_field_names_are_refused():
    with pytest.raises(ModelDefinitionError, match="the name of a field is reserved"):
        create: Any = create_model
        create("Thing", __base__=KvModel, **{"id": (PrimaryKey[int], ...), "$kvx": (int, 1)})


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyword", "suggestion"), [("colection", "collection"), ("abstrakt", "abstract"), ("x_y", None)]
)
def test_an_unknown_class_keyword_is_refused_with_a_suggestion(keyword, suggestion):
    error = refused("a keyword of a model class does not exist", keywords={keyword: "x"})
    assert (error.option, error.suggestion) == (keyword, suggestion)


@pytest.mark.parametrize(
    ("option", "suggestion"), [("index", "indexes"), ("schema_verson", "schema_version"), ("tll", "ttl")]
)
def test_an_unknown_option_of_meta_is_refused_with_a_suggestion(option, suggestion):
    error = refused("an option of Meta does not exist", meta={option: 1})
    assert (error.option, error.suggestion) == (option, suggestion)
    assert all(name in error.hint for name in META_OPTIONS)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"indexes": Index("id")}, "Meta.indexes is not a tuple"),
        ({"indexes": ("id",)}, "Meta.indexes is not a tuple"),
        ({"abstract": "no"}, "takes True or False"),
        ({"trust_validators": 1}, "takes True or False"),
        ({"schema_version": 0}, "not a whole number"),
        ({"schema_version": True}, "not a whole number"),
        ({"schema_version": "2"}, "not a whole number"),
        ({"abstract": True, "collection": "x"}, "an abstract model has no collection"),
    ],
)
def test_options_with_wrong_values_are_refused(meta, message):
    refused(message, meta=meta)


def test_pydantic_settings_are_class_keywords_too():
    assert declare(keywords={"frozen": True, "collection": "x"}).model_config["frozen"] is True


def test_a_class_may_take_its_own_keywords():
    class Tagged(KvModel, abstract=True):
        tag: ClassVar[str] = ""

        def __init_subclass__(cls, *, tag: str = "", **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            cls.tag = tag

    class Thing(Tagged, tag="t", collection="things"):
        id: PrimaryKey[int]

    assert (Thing.tag, schema_of(Thing).collection) == ("t", "things")
    with pytest.raises(ModelDefinitionError, match="keyword"):

        class Other(Tagged, tga="t"):
            id: PrimaryKey[int]


# --- primary keys and columns -----------------------------------------------------------------------------------------


def test_a_model_needs_a_primary_key():
    with pytest.raises(ModelDefinitionError, match="a model has no primary key") as caught:

        class Thing(KvModel):
            a: int

    assert "abstract=True" in str(caught.value)


def test_an_abstract_model_needs_none_and_has_no_schema():
    class Base(KvModel, abstract=True):
        a: int

    with pytest.raises(ModelDefinitionError, match="an abstract model has no records"):
        schema_of(Base)


@pytest.mark.parametrize("other", [KvModel, BaseModel, int, None, "User"])
def test_only_model_classes_have_a_schema(other):
    with pytest.raises(ModelDefinitionError, match="not a model class"):
        schema_of(other)


def test_a_primary_key_is_never_optional():
    assert refused("a primary key field is optional", b=PrimaryKey[int | None]).field == "b"
    assert refused("a primary key field is optional", b=PrimaryKey[MAYBE_A]).field == "b"


def test_several_primary_key_fields_are_one_key_in_declaration_order():
    model = declare(b=int, c=PrimaryKey[str])
    assert [column.field for column in schema_of(model).primary_key] == ["id", "c"]
    assert model(id=1, b=2, c="x").pk == (1, "x")
    assert declare()(id=7).pk == 7


@pytest.mark.parametrize("marker", [Unique, Indexed, PrimaryKey])
@pytest.mark.parametrize("annotation", [list[int], dict[str, int], Any, Child, int | str, complex, set[str]])
def test_a_type_that_is_no_column_is_refused(marker, annotation):
    if annotation is complex:
        annotation = Annotated[complex, Stored(str, complex)]
    error = refused("cannot be in a key or index", v=Annotated[annotation, marker()])
    assert error.field == "v"
    assert "Decimal" in error.hint


def test_a_column_is_never_stored_by_functions_of_the_user():
    refused("cannot be in a key or index", v=Annotated[str, Unique(), Stored(str, str)])


def test_mixed_values_are_refused_in_a_column_and_allowed_elsewhere():
    assert refused("must have one type", v=Indexed[Literal["a", 1]]).field == "v"
    assert "v" not in schema_of(declare(v=Literal["a", 1])).column_codecs


def test_key_number_marks_int_fields_only():
    assert schema_of(declare(v=Annotated[int, Indexed(), KeyNumber()])).column_codecs["v"].name == "number"
    assert refused("KeyNumber marks an int field", v=Annotated[str, Indexed(), KeyNumber()]).field == "v"


@pytest.mark.parametrize("annotation", [list[Unique[int]], Unique[int] | str, dict[str, list[Unique[int]]]])
def test_a_marker_inside_of_the_type_is_refused(annotation):
    error = refused("a marker is inside the type", v=annotation)
    assert (error.field, error.option) == ("v", "Unique")


def test_none_may_stand_outside_of_the_marker():
    inside, outside = declare(v=Indexed[int | None]), declare(v=Annotated[int, Indexed()] | None)
    assert schema_of(inside).indexes["v"].hash() == schema_of(outside).indexes["v"].hash()


def test_a_marker_needs_no_call():
    assert list(schema_of(declare(v=Annotated[int, Unique])).indexes) == ["v"]


def test_every_field_of_a_column_type_has_a_codec_and_optional_ones_are_known():
    schema = schema_of(declare(a=int | None, b=str, c=list[int], d=MAYBE_A))
    assert set(schema.column_codecs) == {"id", "a", "b", "d"}
    assert schema.nullable_fields == {"a", "d"}


# --- indexes ----------------------------------------------------------------------------------------------------------


def test_columns_carry_direction_and_none():
    schema = schema_of(
        declare(a=int | None, b=str, meta={"indexes": (Index("b", "-a", nulls="skip", store="record"),)})
    )
    index = schema.indexes["b_a"]
    assert index.signature() == {
        "columns": [["b", "str", "asc", False], ["a", "int", "desc", True]],
        "unique": False,
        "nulls": "skip",
        "store": "record",
    }
    descending = index.columns[1].codec
    assert descending.pack(None) > descending.pack(-5) > descending.pack(3)


def test_a_descending_field_marker_turns_the_order():
    index = schema_of(declare(a=Annotated[int, Indexed(descending=True)])).indexes["a"]
    assert index.columns[0].descending
    assert index.columns[0].codec.pack(2) < index.columns[0].codec.pack(1)


def test_an_index_of_an_unknown_field_is_refused_with_a_suggestion():
    error = refused("an index names a field that does not exist", country=str, meta={"indexes": (Index("-contry"),)})
    assert (error.field, error.suggestion) == ("contry", "country")


# --- inheritance ------------------------------------------------------------------------------------------------------


class Stamped(KvModel, abstract=True):
    created: Indexed[int] = Field(default=0)

    class Meta:
        indexes = (Index("created", "-id"),)
        trust_validators = True


def test_abstract_parents_pass_fields_and_indexes_on():
    class Base(Stamped, abstract=True):
        id: PrimaryKey[int]

    class Thing(Base):
        name: str

        class Meta:
            indexes = (Index("name"),)

    schema = schema_of(Thing)
    assert list(schema.indexes) == ["created", "created_id", "name"]
    assert list(schema.fields) == ["created", "id", "name"]


def test_a_concrete_parent_passes_fields_on_but_neither_collection_nor_meta_indexes():
    class User(KvModel, collection="users"):
        id: PrimaryKey[int]
        email: Unique[str]

        class Meta:
            indexes = (Index("email", "-id"),)

    class Admin(User):
        level: Indexed[int] = Field(default=0)

    schema = schema_of(Admin)
    assert schema.collection == "admin"
    assert list(schema.indexes) == ["email", "level"]
    assert issubclass(Admin.DoesNotExist, User.DoesNotExist)
    assert (Admin.level == 1).model is Admin
    assert (Admin.email == "a@x.org").model is Admin


def test_meta_may_derive_from_the_meta_of_the_parent():
    class Thing(Stamped):
        id: PrimaryKey[int]

        class Meta(Stamped.Meta):
            schema_version = 2

    assert schema_of(Thing).schema_version == 2
    assert list(schema_of(Thing).indexes) == ["created", "created_id"]


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    email: str
    team: str = ""

    class Meta:
        indexes: tuple[Any, ...] = (UniqueConstraint("email"), Index("team", "-id"))
        schema_version = 3
        ttl: int | None = 60


def test_a_meta_that_derives_from_that_of_a_parent_with_records_inherits_its_indexes_and_lifetime():
    class Admin(Account, collection="admins"):
        class Meta(Account.Meta):
            pass

    class Root(Admin, collection="roots"):
        class Meta(Admin.Meta):
            indexes = (Index("team", "-id"), Index("-team"))
            ttl = None

    class Without(Account, collection="without"):
        class Meta:
            indexes = (Index("-team"),)

    assert list(schema_of(Admin).indexes) == list(schema_of(Account).indexes) == ["email", "team_id"]
    assert schema_of(Admin).indexes["email"].unique
    assert (schema_of(Admin).ttl_ms, schema_of(Admin).schema_version) == (60_000, 1)
    assert list(schema_of(Root).indexes) == ["email", "team_id", "team"]
    assert (schema_of(Root).collection, schema_of(Root).ttl_ms) == ("roots", None)
    assert (list(schema_of(Without).indexes), schema_of(Without).ttl_ms) == (["team"], None)


def test_a_meta_passes_on_the_indexes_of_abstract_parents_of_the_parent():
    class Base(KvModel, abstract=True):
        id: PrimaryKey[int]
        a: int

        class Meta:
            indexes: tuple[Any, ...] = (UniqueConstraint("a"),)

    class Parent(Base, collection="parents"):
        class Meta(Base.Meta):
            pass

    class Child(Parent, collection="children"):
        class Meta(Parent.Meta):
            indexes = (Index("-a", name="downwards"),)

    assert list(schema_of(Child).indexes) == ["a", "downwards"]


def test_redefining_a_field_neither_warns_nor_inherits_its_default():
    class User(KvModel):
        id: PrimaryKey[int]
        age: Indexed[int] = Field(default=1)

    class Admin(User):
        age: Unique[int]

    assert Admin.model_fields["age"].is_required()
    assert schema_of(Admin).indexes["age"].unique
    assert not schema_of(User).indexes["age"].unique


def test_plain_pydantic_mixins_bring_fields_and_indexes():
    class Timed(BaseModel):
        made: Indexed[int] = Field(default=1)

    class Thing(Timed, KvModel):
        id: PrimaryKey[int]

    assert list(schema_of(Thing).indexes) == ["made"]
    assert Thing(id=1).made == 1


def test_create_model_makes_models():
    model: Any = create_model("Thing", __base__=KvModel, id=(PrimaryKey[int], ...), name=(Unique[str], "x"))
    assert list(schema_of(model).indexes) == ["name"]
    assert model(id=1).name == "x"
    assert (model.name == "x").field == "name"


def test_query_attributes_are_made_for_the_fields_of_a_class_and_never_stored():
    class User(KvModel):
        id: PrimaryKey[int]
        name: str = "n"

    assert repr(User.name) == "User.name"
    assert "name" not in vars(User)
    assert not hasattr(User, "nope")
    assert not hasattr(KvModel, "name")
    assert User(id=1).name == "n"


def test_a_class_that_failed_leaves_query_attributes_working():
    class User(KvModel):
        id: PrimaryKey[int]

    with pytest.raises(ModelDefinitionError):

        class Broken(User):
            pk: int

    assert repr(User.id) == "User.id"


def test_configuration_of_pydantic_stays_untouched():
    class User(KvModel):
        model_config = ConfigDict(title="T")
        id: PrimaryKey[int] = pydantic.Field(description="d")

    assert User.model_json_schema()["title"] == "T"
    assert User.model_json_schema()["properties"]["id"]["description"] == "d"


def test_definition_errors_are_typeerrors_of_the_tree():
    with pytest.raises(TypeError) as caught:
        declare(keywords={"colection": "x"})
    assert isinstance(caught.value, KvModelsError)
    assert "KV101" in str(caught.value)


@pytest.mark.parametrize("marker", [PrimaryKey, Unique, Indexed])
def test_a_marker_without_the_type_of_its_field_is_refused_in_our_words(marker: Any):
    with pytest.raises(ModelDefinitionError, match="without the type") as refused:
        create_model("Bare", __base__=KvModel, id=(PrimaryKey[int], ...), x=(marker, ...))
    assert refused.value.option == marker.__name__
    assert f"{marker.__name__}[int]" in str(refused.value)
