"""Declarations of many-to-many relations, their refusals, and the link models that are made for them."""

from __future__ import annotations

import copy
import inspect
import io
from typing import Annotated, Any, Literal

import pydantic
import pytest

from kvmodels import (
    CASCADE,
    Database,
    Field,
    ForeignKey,
    Indexed,
    KvModel,
    ManyToMany,
    ManyToManyRef,
    ModelDefinitionError,
    PrimaryKey,
    UnknownFieldError,
    describe,
)
from tests.links import postponed
from tests.links.models import MODELS, Authorship, Book, Person, Post, Tag


def test_a_relation_is_no_field_of_its_model():
    assert list(Post.model_fields) == ["id", "title"]
    assert list(Post.model_json_schema()["properties"]) == ["id", "title"]
    assert list(Post.partial().model_fields) == ["id", "title"]
    assert isinstance(Post.tags, ManyToManyRef)
    assert (repr(Post.tags), repr(Post.tags.reverse)) == ("Post.tags", "Tag.post")
    with Database("memory://", models=MODELS) as db:
        db[Post].create(id=1)
        stored = db.kv.get(("posts", 1))
        assert stored is not None
        assert stored.value == {"id": 1, "title": ""}
        with pytest.raises(UnknownFieldError):
            db[Post].create(id=2, tags=[])


def test_a_record_has_no_attribute_for_a_relation_and_the_error_shows_the_call():
    post: Any = Post(id=1)
    with pytest.raises(AttributeError, match=r"db\[Post\]\.links\(Post\.tags\)\.fetch\(\[record\]\)"):
        _ = post.tags
    assert not hasattr(copy.deepcopy(post), "tags")
    with pytest.raises(AttributeError):
        post.tags = []


def test_a_relation_in_the_constructor_is_refused_and_the_error_shows_the_call():
    post: Any = Post
    for make in (lambda: post(id=1, tags=[1]), lambda: Database(models=MODELS)[Post].create(id=1, tags=[1])):
        with pytest.raises(UnknownFieldError, match=r"db\[Post\].links\(Post.tags\).add") as caught:
            make()
        assert (caught.value.model, caught.value.field) == ("Post", "tags")
    assert Post.model_validate({"id": 1, "tags": [1], "unknown": 2}) == post(id=1, unknown=2)
    assert not Post.__pydantic_custom_init__
    assert Post.__signature__ == inspect.signature(Post)
    assert list(inspect.signature(Post).parameters) == ["id", "title"]


def test_a_class_that_takes_other_names_takes_that_of_a_relation():
    class Open(Post, collection="open_posts", extra="allow"):
        """Keeps every name."""

    class Strict(Post, collection="strict_posts", extra="forbid"):
        """Is pydantic's to refuse."""

    class Aliased(Post, collection="aliased_posts"):
        label: str = Field(default="", alias="tags")

    class Coded(Post, collection="coded_posts"):
        @pydantic.model_validator(mode="before")
        @classmethod
        def without_tags(cls, data: Any) -> Any:
            return {name: value for name, value in data.items() if name != "tags"}

    classes: Any = Open, Strict, Aliased, Coded
    opened, strict, aliased, coded = classes
    assert opened(id=1, tags=[1]).model_extra == {"tags": [1]}
    with pytest.raises(pydantic.ValidationError, match="Extra inputs"):
        strict(id=1, tags=[1])
    assert aliased(id=1, tags="x").label == "x"
    assert coded(id=1, tags=[1]).id == 1


def test_the_link_model_is_made_by_the_rule_that_the_guide_promises():
    with Database("memory://", models=MODELS) as db:
        made = db[Post].links(Post.tags).model
        described = describe(made)
        assert described.collection == "posts_tags"
        assert [field.name for field in described.fields] == ["owner_id", "target_id"]
        assert [column.name for column in described.primary_key] == ["owner_id", "target_id"]
        assert [(one.name, one.references, one.on_delete) for one in described.indexes] == [
            ("owner_id", "posts", "cascade"),
            ("target_id", "tags", "cascade"),
        ]
        assert (made.__name__, made.__module__) == ("PostTags", Post.__module__)
        assert db[Person].links(Person.friends).model.__name__ == "PersonFriends"
        assert [model.__name__ for model in db.models[len(MODELS) :]] == ["PostTags", "PostHiddenTags", "PersonFriends"]


def test_the_keys_of_stored_links_are_those_of_the_layout():
    with Database("memory://", models=MODELS) as db:
        db[Tag].create(id=7, name="red")
        db[Post].create(id=1)
        db[Post].links(Post.tags).add(1, 7)
        stored = {entry.key: entry.value for entry in db.kv.list(()) if str(entry.key[0]).startswith("posts_tags")}
        assert stored == {
            ("posts_tags", 1, 7): {"owner_id": 1, "target_id": 7},
            ("posts_tags_by_owner_id", 1, 1, 7): b"",
            ("posts_tags_by_target_id", 7, 1, 7): b"",
        }


def test_a_dump_has_the_links_and_a_load_brings_them_back():
    file = io.BytesIO()
    with Database("memory://", models=MODELS) as db:
        db[Tag].create(id=7, name="red")
        db[Post].create(id=1)
        db[Post].links(Post.tags).add(1, 7)
        db.dump(file)
    file.seek(0)
    with Database("memory://", models=MODELS) as db:
        db.load(file)
        assert db[Post].links(Post.tags).fetch([1]) == {1: [Tag(id=7, name="red")]}
        assert db.check().ok


def test_hooks_of_links_run_with_each_change():
    with Database("memory://", models=MODELS) as db:
        db[Tag].create(id=7, name="red")
        db[Post].create(id=1)
        tags, seen = db[Post].links(Post.tags), list[str]()
        db.signals.after_insert(tags.model)(lambda link: seen.append(f"added {link.target_id}"))
        db.signals.before_remove(tags.model)(lambda link: seen.append(f"removes {link.target_id}"))
        tags.add(1, 7)
        tags.add(1, 7)
        tags.clear(1)
        assert seen == ["added 7", "removes 7"]


def test_a_renamed_class_keeps_the_links_that_are_stored(tmp_path: Any):
    class Article(KvModel, collection="posts"):
        id: PrimaryKey[int]
        title: Indexed[str] = Field(default="")
        tags: ManyToMany[Tag] = ManyToMany()
        hidden_tags: ManyToMany[Tag] = ManyToMany(related_name="hidden_in")

    path = str(tmp_path / "store.db")
    with Database(path, models=[Tag, Post]) as db:
        db[Tag].create(id=1, name="red")
        db[Post].create(id=1)
        db[Post].links(Post.tags).add(1, 1)
    with Database(path, models=[Tag, Article]) as db:
        assert not db.plan().steps
        assert [tag.id for tag in db[Article].links(Article.tags).fetch([1])[1]] == [1]


def test_a_release_that_adds_a_relation_needs_no_change_of_stored_records(tmp_path: Any):
    class Plain(KvModel, collection="posts"):
        id: PrimaryKey[int]

    class Tagged(KvModel, collection="posts"):
        id: PrimaryKey[int]
        tags: ManyToMany[Tag] = ManyToMany()

    path = str(tmp_path / "store.db")
    with Database(path, models=[Plain]) as db:
        db[Plain].create(id=1)
    with Database(path, models=[Tag, Tagged]) as db:
        db[Tag].create(id=1, name="red")
        assert db[Tagged].links(Tagged.tags).add(1, 1) == 1
        assert db.check().ok
    with Database(path, models=[Plain, Tag]) as db:  # the catalogue knows the links
        with pytest.raises(Exception, match="posts_tags"):
            db[Plain].remove(1)


def test_link_models_of_inherited_relations_are_those_of_the_derived_classes():
    class Tagged(KvModel, abstract=True):
        tags: ManyToMany[Tag] = ManyToMany()

    class Song(Tagged, collection="songs"):
        id: PrimaryKey[int]

    class Film(Tagged, collection="films"):
        id: PrimaryKey[str]

    with Database("memory://", models=[Tag, Song, Film]) as db:
        db[Tag].create(id=1, name="red")
        db[Song].create(id=1)
        db[Film].create(id="f")
        assert db[Song].links(Song.tags).add(1, 1) == db[Film].links(Film.tags).add("f", 1) == 1
        assert db[Tag].filter(song=1, film="f").count() == 1
        assert db[Film].links(Film.tags).model.model_fields["owner_id"].annotation is str


def test_a_target_may_be_declared_later_and_modules_may_postpone_annotations():
    with Database("memory://", models=[postponed.Article, postponed.Topic]) as db:
        db[postponed.Article].create(id=1)
        db[postponed.Topic].create(id=7)
        for relation in (postponed.Article.topics, postponed.Article.others, postponed.Article.third):
            assert db[postponed.Article].links(relation).add(1, 7) == 1


def test_classes_that_share_a_collection_share_their_relations():
    class Media(KvModel, collection="media", discriminator="kind"):
        id: PrimaryKey[int]
        kind: str
        tags: ManyToMany[Tag] = ManyToMany()

    class Song(Media):
        kind: Literal["song"] = "song"  # pyright: ignore[reportIncompatibleVariableOverride]

    with Database("memory://", models=[Tag, Media]) as db:
        db[Tag].create(id=1, name="red")
        db[Media].save(Song(id=1))
        assert db[Media].links(Media.tags).add(1, 1) == 1
        assert db[Song].links(Song.tags).fetch([1]) == {1: [db[Tag].get(1)]}
        assert db[Song].filter(tags__name="red").to_list() == [Song(id=1)]


def test_a_relation_of_some_classes_of_a_collection_is_refused():
    class Media(KvModel, collection="media", discriminator="kind"):
        id: PrimaryKey[int]
        kind: str

    class Song(Media):
        kind: Literal["song"] = "song"  # pyright: ignore[reportIncompatibleVariableOverride]
        tags: ManyToMany[Tag] = ManyToMany()

    with pytest.raises(ModelDefinitionError, match="some classes of a collection only") as refused:
        Database("memory://", models=[Tag, Media])
    assert (refused.value.model, refused.value.field) == (Song.__name__, "tags")


class Two(KvModel, collection="twos"):
    first: PrimaryKey[int]
    second: PrimaryKey[int]


class Passing(KvModel, collection="passing"):
    id: PrimaryKey[int]

    class Meta:
        ttl = 60


class Unkeyed(KvModel, collection="unkeyed"):
    id: PrimaryKey[int]
    book: ForeignKey[int, Book]
    person: ForeignKey[str, Person]


class Pair(KvModel, collection="pairs"):
    first: Annotated[ForeignKey[str, "Human"], PrimaryKey(), CASCADE]  # noqa: UP037
    second: Annotated[ForeignKey[str, "Human"], PrimaryKey(), CASCADE]  # noqa: UP037


class Human(KvModel, collection="humans"):
    name: PrimaryKey[str]
    parents: ManyToMany[Human] = ManyToMany(through=Pair, through_fields=("second", "first"), related_name="children")


def test_the_keys_of_a_link_model_between_one_model_are_told_apart_by_name():
    with Database("memory://", models=[Human]) as db:  # a link model that is given as a class is added
        db[Human].bulk_create([Human(name="ann"), Human(name="bob")])
        db[Human].links(Human.parents).add("bob", "ann")
        assert db[Pair].get(("ann", "bob")) == Pair(first="ann", second="bob")
        assert db[Human].filter(parents="ann").to_list() == [Human(name="bob")]
        assert db[Human].filter(children="bob").to_list() == [Human(name="ann")]


def owner(target: Any, **options: Any) -> type[Any]:
    annotations = {"id": PrimaryKey[int], "links": ManyToMany[target]}
    namespace = {"__module__": __name__, "__annotations__": annotations, "links": ManyToMany(**options)}
    made: Any = type(KvModel)
    model: type[Any] = made("Owner", (KvModel,), namespace, collection="owners")
    return model


@pytest.mark.parametrize(
    ("target", "options", "others", "message"),
    [
        (Tag, {}, [], "not among the models"),
        ("Tagg", {}, [Tag], "not among the models"),
        (Two, {}, [Two, Tag], "primary key of several fields"),
        (Passing, {}, [Passing, Tag], "expire"),
        (Tag, {"related_name": "name"}, [Tag], "another meaning"),
        (Tag, {"related_name": "parent"}, [Tag], "another meaning"),
        (Tag, {"through": "Missing"}, [Tag], "name of a link model"),
        (Tag, {"through": Authorship}, [Tag, Book, Authorship, Person], "not a foreign key to the owner"),
        (Tag, {"through": Unkeyed}, [Tag, Book, Authorship, Person], "not a foreign key to the owner"),
    ],
)
def test_a_relation_that_cannot_be_is_refused_when_the_database_is_opened(
    target: Any, options: dict[str, Any], others: list[type[Any]], message: str
):
    with pytest.raises(ModelDefinitionError, match=message) as refused:
        Database("memory://", models=[owner(target, **options), *others])
    assert refused.value.hint


def test_two_keys_to_one_model_need_names():
    class Self(KvModel, collection="selves"):
        name: PrimaryKey[str]
        others: ManyToMany["Self"] = ManyToMany(through="Both")  # noqa: UP037

    class Both(KvModel, collection="boths"):
        one: Annotated[ForeignKey[str, Self], PrimaryKey(), CASCADE]
        two: Annotated[ForeignKey[str, Self], PrimaryKey(), CASCADE]

    with pytest.raises(ModelDefinitionError, match=r"through_fields=\('one', 'two'\)"):
        Database("memory://", models=[Self, Both])


@pytest.mark.parametrize(
    "options", [{"through": 3}, {"through_fields": ("one",)}, {"related_name": "a b"}, {"related_name": 3}]
)
def test_an_option_of_the_wrong_form_is_refused_at_once(options: dict[str, Any]):
    with pytest.raises(ModelDefinitionError, match="wrong form"):
        ManyToMany(**options)


def test_a_body_that_declares_no_relation_properly_is_refused():
    with pytest.raises(ModelDefinitionError, match="neither a model class"):
        ManyToMany[3]  # type: ignore[valid-type]
    with pytest.raises(ModelDefinitionError, match="no target"):

        class Bare(KvModel, collection="bares"):
            id: PrimaryKey[int]
            tags: ManyToMany

    with pytest.raises(ModelDefinitionError, match=r"is no ManyToMany\(\)"):

        class Wrong(KvModel, collection="wrongs"):
            id: PrimaryKey[int]
            tags: ManyToMany[Tag] = []  # type: ignore[assignment]

    with pytest.raises(ModelDefinitionError, match="attribute of every model"):

        class Reserved(KvModel, collection="reserved"):
            id: PrimaryKey[int]
            versionstamp: ManyToMany[Tag] = ManyToMany()  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]


def test_models_of_tenants_have_relations_among_themselves():
    with Database("memory://", tenant_models=[Tag, Post]) as db:
        one, two = db.tenant("one", create=True), db.tenant("two", create=True)
        for part in (one, two):
            part[Tag].create(id=1, name="red")
            part[Post].create(id=1)
        one[Post].links(Post.tags).add(1, 1)
        assert [one[Post].filter(tags=1).count(), two[Post].filter(tags=1).count()] == [1, 0]
        assert two[Post].links(Post.tags).fetch([1]) == {1: []}
    with pytest.raises(ModelDefinitionError, match="not among the models"):
        Database("memory://", models=[Tag], tenant_models=[Post])
