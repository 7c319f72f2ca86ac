"""Records of an older schema version: they are read as the declared one, wherever they are read, and never lost."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pytest

from kvmodels import (
    Count,
    DecodeError,
    Index,
    Indexed,
    IndexNotReadyError,
    KvModel,
    ModelDefinitionError,
    PrimaryKey,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    Sum,
    Upgrade,
    upgrade,
)
from kvmodels.schema.compile.schema import schema_of
from tests.evolution.accounts import Account, NewAccount, Touched, account
from tests.oracle import audit, read_store, spec_of
from tests.robustness.models import require_readable


def filled(opened: Any, count: int = 12) -> Any:
    old = opened(Account)
    old[Account].bulk_create([Account(**account(n)) for n in range(count)])
    return old


def brought_up(opened: Any, model: Any) -> Any:
    """A database of a release whose schema version was raised, without rewriting any record."""
    db = opened(model)
    db.build_indexes()
    return db


# --- reading ----------------------------------------------------------------------------------------------------------


def test_every_way_of_reading_gives_the_upgraded_values_before_anything_is_migrated(opened):
    filled(opened)
    users = opened(Touched)[Touched]
    assert (users.get(3).email, users.get(3).visits) == ("user3@x.org", 4)
    assert [found.visits for found in users.all()] == list(range(1, 13))
    assert users.in_bulk([5])[5].email == "user5@x.org"
    # Through an index that no upgrade touches: of entries, of copies, covered by entries, with several values.
    assert [found.visits for found in users.filter(age=3)] == [4, 11]
    assert [found.visits for found in users.filter(city="oslo").using_index("copies")] == [2, 4, 6, 8, 10, 12]
    assert list(users.filter(city="oslo").using_index("ages").values_list("age", flat=True)) == [1, 3, 5, 0, 2, 4]
    assert [found.email for found in users.filter(tags__contains="b")] == [
        "user2@x.org",
        "user5@x.org",
        "user8@x.org",
        "user11@x.org",
    ]
    assert users.filter(city="rome").count() == 6
    # What is tested, sorted, projected and added up is the upgraded value too.
    assert users.filter(age=3, email="user3@x.org").allow_scan().count() == 1
    assert [found.id for found in users.filter(visits__gte=11).allow_scan()] == [10, 11]
    assert [found.id for found in users.order_by("-visits").sort_in_memory(limit=100)[:3]] == [11, 10, 9]
    assert users.filter(id=7).values("email", "visits").to_list() == [{"email": "user7@x.org", "visits": 8}]
    assert users.all().allow_scan().aggregate(total=Sum("visits"))["total"] == sum(range(1, 13))
    assert users.filter(initial="u").allow_scan().count() == 12
    assert users.filter(initial="U").allow_scan().count() == 0


def test_review_06_queries_through_an_index_that_an_upgrade_touches_are_refused_until_no_record_is_older(opened):
    filled(opened)
    db = opened(Touched)
    users = db[Touched]
    waiting = (
        lambda: users.get(email="user3@x.org"),
        lambda: users.filter(email__startswith="user").to_list(),
        lambda: users.filter(initial="u").to_list(),
        lambda: users.filter(city="rome").using_index("visited").to_list(),
        lambda: users.filter(city="rome").using_index("visits_per_city").aggregate(total=Sum("visits")),
        lambda: users.get_or_create(email="user3@x.org", defaults={"id": 99, "size": 1}),
    )
    for ask in waiting:
        with pytest.raises(IndexNotReadyError) as caught:
            ask()
        assert caught.value.state == "outdated"
        require_readable(caught.value)
    assert db.check().ok
    report = db.migrate(Touched)
    assert (report.complete, report.written) == (True, 12)
    assert users.get(email="user3@x.org").id == 3
    assert users.filter(email__startswith="user").count() == 12
    assert users.filter(initial="u").count() == 12
    assert list(users.filter(city="rome").using_index("visited").values_list("visits", flat=True)) == [
        1,
        3,
        5,
        7,
        9,
        11,
    ]
    assert users.filter(city="rome").aggregate(total=Sum("visits"), n=Count()) == {"total": 36, "n": 6}
    assert audit(read_store(db.kv), [spec_of(Touched)]) == []
    assert db.check().ok


def test_entries_of_records_that_were_not_rewritten_stay_those_of_what_is_stored(opened):
    """The check by the library and the oracle agree while both forms are in the store."""
    old = filled(opened)
    db = brought_up(opened, Touched)
    users = db[Touched]
    users.patch(1, city="paris")
    users.remove(2)
    users.save(users.get(3))
    users.create(**account(20, email="new@x.org"))
    assert audit(read_store(db.kv), [spec_of(Touched)]) == []
    assert db.check().ok
    keys = [entry.key[1] for entry in db.kv.list(prefix=("accounts_by_email",))]
    assert "user1@x.org" in keys
    assert "User1@X.org" not in keys
    assert "User4@X.org" in keys
    assert old[Account].get(4).email == "User4@X.org"
    assert db.check(repair=True).repaired == ()
    db.migrate(Touched)
    assert users.get(email="user1@x.org").visits == 2
    assert audit(read_store(db.kv), [spec_of(Touched)]) == []


def test_a_release_with_upgrades_only_reads_until_it_is_applied_and_the_older_one_from_then_on(opened):
    old = filled(opened)
    new = opened(Touched)
    for write in (
        lambda: new[Touched].create(**account(20)),
        lambda: new[Touched].patch(1, age=1),
        lambda: new[Touched].remove(1),
    ):
        with pytest.raises(SchemaMismatchError) as caught:
            write()
        assert (caught.value.stored, caught.value.declared) == (1, 2)
        assert "db.apply()" in str(caught.value.hint)
        require_readable(caught.value)
    old[Account].patch(3, city="paris")
    assert new[Touched].get(3).city == "paris"
    new.apply()
    with pytest.raises(SchemaMismatchError):
        old[Account].patch(3, city="oslo")
    # What the older release would miss without knowing is refused; what it can find, it may find unreadable.
    for ask in (
        lambda: old[Account].get(email="User3@X.org"),
        lambda: old[Account].filter(initial="U").count(),
        lambda: old[Account].filter(city="rome").using_index("visits_per_city").aggregate(total=Sum("visits")),
    ):
        with pytest.raises(IndexNotReadyError) as waiting:
            ask()
        assert waiting.value.state == "superseded"
        require_readable(waiting.value)
    assert old[Account].filter(city="rome").count() == 6
    for read in (
        lambda: old[Account].filter(city="rome").to_list(),
        lambda: old[Account].filter(city="rome").values("visits").to_list(),
        lambda: old[Account].filter(city="rome", visits=3).allow_scan().count(),
        lambda: old[Account].all().allow_scan().aggregate(total=Sum("visits")),
    ):
        with pytest.raises(DecodeError) as newer:
            read()
        assert newer.value.reason == "stored 2, declared 1"


def test_an_upgrade_is_applied_once_to_each_record_whoever_rewrites_it(opened):
    filled(opened)
    db = brought_up(opened, Touched)
    users = db[Touched]
    assert users.patch(1, age=50).visits == 2
    assert users.patch(1, age=51).visits == 2
    loaded = users.get(4)
    users.save(loaded)
    assert users.get(4).visits == 5
    users.mutate(5, lambda found: None)
    db.migrate(Touched)
    db.migrate(Touched)
    assert [found.visits for found in users.all()] == list(range(1, 13))


def test_upgrades_are_applied_in_the_order_of_their_versions_and_from_the_version_of_the_record(opened):
    class One(KvModel, collection="things"):
        id: PrimaryKey[int]
        log: str = ""

    class Two(KvModel, collection="things"):
        id: PrimaryKey[int]
        log: str = ""

        class Meta:
            schema_version = 2
            upgrades = (Upgrade(2, lambda document: {**document, "log": document["log"] + "2"}, touches=("log",)),)

    class Four(KvModel, collection="things"):
        id: PrimaryKey[int]
        log: str = ""

        class Meta:
            schema_version = 4
            upgrades = (
                Upgrade(4, lambda document: {**document, "log": document["log"] + "4"}, touches=("log",)),
                *Two.Meta.upgrades,
            )

        @upgrade(to=3, touches=["log"])
        @classmethod
        def third(cls, document):
            document["log"] += cls.__name__
            return document

    opened(One)[One].create(id=1)
    brought_up(opened, Two)[Two].create(id=2, log="-")
    db = brought_up(opened, Four)
    assert [found.log for found in db[Four].all()] == ["2Four4", "-Four4"]
    db[Four].create(id=3, log="*")
    assert db[Four].get(3).log == "*"
    with pytest.raises(DecodeError):
        opened(Two)[Two].get(3)


# --- what an upgrade may not do ---------------------------------------------------------------------------------------


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    text: Indexed[str]
    tags: list[str] = []
    mark: str = ""


def release(function: Any, touches: tuple[str, ...] = ("mark",)) -> type[KvModel]:
    class Later(KvModel, collection="notes"):
        id: PrimaryKey[int]
        text: Indexed[str]
        tags: list[str] = []
        mark: str = ""

        class Meta:
            schema_version: ClassVar = 2
            upgrades: ClassVar = (Upgrade(2, function, touches=touches),)

    return Later


def fails(document: dict[str, Any]) -> dict[str, Any]:
    raise ZeroDivisionError


WRONG = {
    "raises": (fails, "ZeroDivisionError"),
    "misses a field": (lambda document: {**document, "mark": document["label"]}, "KeyError"),
    "gives nothing": (lambda document: None, "it gave NoneType"),
    "changes another field": (lambda document: {**document, "text": "x"}, "'text'"),
    "changes a list in place": (lambda document: document["tags"].append("x") or document, "'tags'"),
    "adds a field": (lambda document: {**document, "more": 1}, "'more'"),
    "takes one away": (lambda document: {name: document[name] for name in ("id", "mark")}, "it changed"),
    "changes a type only": (lambda document: {**document, "tags": ()}, "'tags'"),
    "gives an invalid value": (lambda document: {**document, "mark": 3}, "string_type"),
}


FIELDS = {
    "changes another field": "text",
    "changes a list in place": "tags",
    "adds a field": "more",
    "takes one away": "text",
    "changes a type only": "tags",
}
"""The field that the error names, where it is not the one that the upgrade declares."""


@pytest.mark.parametrize("name", WRONG)
def test_what_an_upgrade_does_wrong_is_an_error_that_names_the_record_and_loses_nothing(opened, name):
    function, reason = WRONG[name]
    model: Any = release(function)
    opened(Note)[Note].create(id=1, text="a", tags=["t"])
    db = brought_up(opened, model)
    for read in (
        lambda: db[model].get(1),
        lambda: db[model].all().to_list(),
        lambda: db[model].filter(text="a").to_list(),
        lambda: db[model].patch(1, text="b"),
        lambda: db[model].filter(mark="x").allow_scan().to_list(),
    ):
        with pytest.raises(DecodeError) as caught:
            read()
        assert reason in str(caught.value.reason)
        assert caught.value.key == (1,)
        assert caught.value.field == FIELDS.get(name, "mark")
        require_readable(caught.value)
    before = db.kv.get(("notes", 1))
    found = db.check(repair="all")
    assert [finding.kind for finding in found.findings] == ["undecodable"]
    assert found.repaired == ()
    report = db.migrate(model)
    assert not report.complete
    (listed,) = report.violations
    assert listed[:2] == (1, "not_decodable")
    assert str(listed.reason).startswith(f"{caught.value.field}: upgrade to 2: ")
    assert reason in str(listed.reason)
    assert db.kv.get(("notes", 1)) == before
    assert db[model].remove(1) is True
    assert db.migrate(model).complete
    assert db.check().ok


def declare(version: int, steps: Any) -> None:
    class Thing(KvModel, collection="things"):
        id: PrimaryKey[int]
        name: str = ""

        class Meta:
            schema_version: ClassVar = version
            upgrades: ClassVar = steps


UNTYPED: Any = Upgrade
"""As code without a type checker sees it."""


def same(document: dict[str, Any]) -> dict[str, Any]:
    return document


@pytest.mark.parametrize(
    "version,upgrades,message",
    [
        (2, None, "is not a tuple of upgrades"),
        (2, Upgrade(2, same, ("name",)), "is not a tuple of upgrades"),
        (2, (same,), "is not a tuple of upgrades"),
        (2, (Upgrade(1, same, ("name",)),), "the first upgrade is the one to 2"),
        (2, (Upgrade(True, same, ("name",)),), "the first upgrade is the one to 2"),
        (2, (UNTYPED(2, "same", ("name",)),), "has no function"),
        (2, (Upgrade(2, same),), "does not say which fields"),
        (2, (UNTYPED(2, same, "name"),), "does not say which fields"),
        (2, (Upgrade(2, same, ("a.b",)),), "does not say which fields"),
        (2, (Upgrade(2, same, ("$kv",)),), "does not say which fields"),
        (2, (UNTYPED(2, same, (1,)),), "does not say which fields"),
        (2, (Upgrade(3, same, ("name",)),), "higher schema version"),
        (3, (Upgrade(2, same, ("name",)), Upgrade(2, same, ("id2",))), "two upgrades lead to one"),
        (2, (Upgrade(2, same, ("id",)),), "touches the primary key"),
    ],
)
def test_a_wrong_declaration_is_refused_when_the_class_is_created(version, upgrades, message):
    with pytest.raises(ModelDefinitionError) as caught:
        declare(version, upgrades)
    assert message in str(caught.value)
    require_readable(caught.value)


def test_upgrades_of_abstract_parents_and_mixins_count_and_those_of_other_collections_do_not():
    class Mixin:
        @upgrade(to=2, touches=("name",))
        def of_mixin(document: Any) -> Any:
            return document

    class Base(KvModel, abstract=True):
        id: PrimaryKey[int]
        name: str = ""

        class Meta:
            upgrades = (Upgrade(3, same, touches=("name",)),)

        @upgrade(to=4, touches=("age",))
        @staticmethod
        def of_base(document: Any) -> Any:
            return document

    class Child(Mixin, Base, collection="children"):
        class Meta:
            schema_version = 4

        @staticmethod
        def of_base(document: Any) -> Any:
            """Overrides an upgrade, which is none any more."""

    class Other(Child, collection="others"):
        pass

    assert dict(schema_of(Child).touched) == {"name": 3}
    assert [step.to for step in vars(Child)["__kv_options__"].upgrades] == [2, 3]
    assert schema_of(Other).upgrade is None


def test_the_order_of_decorators_does_not_matter():
    class Thing(KvModel):
        id: PrimaryKey[int]
        name: str = ""

        class Meta:
            schema_version = 3

        @staticmethod
        @upgrade(to=2, touches=("name",))
        def second(document):
            return {**document, "name": "2"}

        @upgrade(to=3, touches=("name",))
        @staticmethod
        def third(document):
            return {**document, "name": document["name"] + "3"}

    schema = schema_of(Thing)
    assert schema.upgrade is not None
    assert schema.upgrade({"id": 1, "name": ""}, (1,))["name"] == "23"
    assert Thing.second({"id": 1}) == {"id": 1, "name": "2"}


# --- other types ------------------------------------------------------------------------------------------------------


def test_a_column_of_another_type_is_read_at_once_and_written_when_its_index_was_replaced(opened):
    old = filled(opened)
    db = opened(NewAccount)
    users = db[NewAccount]
    assert (users.get(3).size, users.get(3).first) == ("3", "Ada3")
    with pytest.raises(SchemaMismatchError) as caught:
        users.patch(3, size="x")
    assert caught.value.index == "size"
    assert "db.apply()" in str(caught.value.hint)
    require_readable(caught.value)
    with pytest.raises(IndexNotReadyError):
        users.filter(size="3").to_list()
    old[Account].patch(3, size=33)
    report = db.apply()
    assert report.complete
    assert users.get(size="33").first == "Ada3"
    assert users.get(email="user4@x.org").last == "Li"
    assert users.filter(first="Ada7").count() == 1
    assert audit(read_store(db.kv), [spec_of(NewAccount)]) == []
    with pytest.raises(SchemaMismatchError):
        old[Account].patch(3, size=34)
    with pytest.raises(DecodeError):
        old[Account].get(3)


def test_without_an_upgrade_another_type_of_an_indexed_column_is_refused_on_every_use(opened):
    class Wrong(KvModel, collection="accounts"):
        id: PrimaryKey[int]
        size: Indexed[str]

        class Meta:
            schema_version: ClassVar = 2
            upgrades: ClassVar = (Upgrade(2, same, touches=("email",)),)

    filled(opened)
    db = opened(Wrong)
    with pytest.raises(SchemaMismatchError) as caught:
        db[Wrong].get(3)
    assert (caught.value.stored, caught.value.declared) == ({"size": "int"}, {"size": "str"})


def test_a_new_collection_and_an_empty_one_have_nothing_to_wait_for(opened):
    fresh = opened(NewAccount)
    assert fresh.plan().is_current
    fresh[NewAccount].create(id=1, email="a", size="s", first="f", last="l")
    assert fresh[NewAccount].get(email="a").id == 1


def test_an_empty_collection_is_brought_up_when_it_is_opened_and_keeps_old_writers_out(opened):
    old = opened(Account)
    new = opened(Touched)
    assert new.plan().is_current
    assert new[Touched].filter(email="a").count() == 0
    with pytest.raises(SchemaMismatchError):
        old[Account].create(**account(1))


def test_extra_fields_and_fields_that_nobody_declares_go_through_an_upgrade(opened):
    class Loose(KvModel, collection="loose", extra="allow"):
        id: PrimaryKey[int]
        name: str = ""

    def renamed(document: dict[str, Any]) -> dict[str, Any]:
        document["title"] = document.pop("name")
        return document

    class Renamed(KvModel, collection="loose"):
        id: PrimaryKey[int]
        title: str

        class Meta:
            schema_version: ClassVar = 2
            upgrades: ClassVar = (Upgrade(2, renamed, touches=("name", "title")),)

    opened(Loose)[Loose].create(id=1, name="n", more=[1, 2])
    db = brought_up(opened, Renamed)
    assert db[Renamed].patch(1, title="t").title == "t"
    assert db.kv.get(("loose", 1)).value == {"id": 1, "title": "t", "more": [1, 2], "$kv": {"v": 2}}


def test_an_index_declared_together_with_the_field_that_an_upgrade_fills_is_built_of_the_upgraded_records(opened):
    class Filled(KvModel, collection="notes"):
        id: PrimaryKey[int]
        text: Indexed[str]
        tags: list[str] = []
        length: Indexed[int]

        class Meta:
            schema_version: ClassVar = 2
            indexes: ClassVar = (Index("length", "-text", name="long"),)

        @upgrade(to=2, touches=("length",))
        @staticmethod
        def measured(document: dict[str, Any]) -> dict[str, Any]:
            return {**document, "length": len(document["text"])}

    old = opened(Note)
    old[Note].bulk_create([Note(id=n, text="x" * n) for n in range(5)])
    db = opened(Filled)
    reports = db.build_indexes()
    assert [(report.index, report.state.value) for report in reports] == [("length", "readable"), ("long", "readable")]
    with pytest.raises(IndexNotReadyError):
        db[Filled].filter(length=3).to_list()
    assert db.migrate(Filled).written == 0
    assert [found.id for found in db[Filled].filter(length=3)] == [3]
    assert db.kv.get(("notes", 4)).value["mark"] == ""
    assert db.check().ok


def test_an_upgrade_is_missed_while_records_may_need_it(opened):
    class Later(KvModel, collection="notes"):
        id: PrimaryKey[int]
        text: Indexed[str]
        tags: list[str] = []
        mark: str = ""

        class Meta:
            schema_version: ClassVar = 3

    model: Any = release(lambda document: {**document, "mark": "x"})
    opened(Note)[Note].create(id=1, text="a")
    second = brought_up(opened, model)
    third = opened(Later)
    for call in (lambda: third[Later].get(1), lambda: third[Later].create(id=2, text="b"), third.build_indexes):
        with pytest.raises(SchemaMismatchError) as caught:
            call()
        assert (caught.value.stored, caught.value.declared) == ((2,), ())
        require_readable(caught.value)
    assert [step.rule for step in third.plan().steps] == ["schema_version_raised", "upgrade_missing"]
    with pytest.raises(SchemaChangeRefusedError):
        third.apply()
    second.migrate(model)
    assert third.apply().complete
    assert third[Later].get(1).mark == "x"


# --- several classes in one collection --------------------------------------------------------------------------------


class PetV1(KvModel, collection="pets", discriminator="kind"):
    id: PrimaryKey[int]
    name: Indexed[str]


class CatV1(PetV1):
    kind: Literal["cat"] = "cat"


class DogV1(PetV1):
    kind: Literal["dog"] = "dog"
    tricks: int = 0


class Pet(KvModel, collection="pets", discriminator="kind"):
    id: PrimaryKey[int]
    name: Indexed[str]

    class Meta:
        schema_version: ClassVar = 2

    @upgrade(to=2, touches=("kind", "name", "tricks"))
    @staticmethod
    def renamed(document: dict[str, Any]) -> dict[str, Any]:
        changed = {"kind": {"dog": "hound"}.get(document["kind"], document["kind"]), "name": document["name"].lower()}
        return {**document, **changed, **({"tricks": document["tricks"] + 1} if document["kind"] == "dog" else {})}


class Cat(Pet):
    kind: Literal["cat"] = "cat"


class Hound(Pet):
    kind: Literal["hound"] = "hound"
    tricks: int = 0


def test_classes_that_share_a_collection_are_upgraded_by_the_first_also_to_another_class(opened):
    old = opened(PetV1)
    old[CatV1].create(id=1, name="Tom")
    old[DogV1].create(id=2, name="Rex", tricks=3)
    db = opened(Pet)
    found = db[Pet].all().to_list()
    assert [(type(one), one.name) for one in found] == [(Cat, "tom"), (Hound, "rex")]
    assert db[Hound].get(2).tricks == 4
    assert db.apply().complete
    assert [one.tricks for one in db[Hound].filter(name="rex")] == [4]
    assert db[Pet].filter(name="tom").count() == 1
    assert db.check().ok
    assert db.plan().is_current


def test_a_class_that_shares_a_collection_has_no_upgrade_of_its_own():
    with pytest.raises(ModelDefinitionError) as caught:

        class Bird(Pet):
            kind: Literal["bird"] = "bird"

            @upgrade(to=2, touches=("wings",))
            @staticmethod
            def winged(document: dict[str, Any]) -> dict[str, Any]:
                return document

    require_readable(caught.value)
    with pytest.raises(ModelDefinitionError):

        class Fish(Pet):
            kind: Literal["fish"] = "fish"

            class Meta:
                upgrades: ClassVar = (Upgrade(2, same, touches=("fins",)),)
