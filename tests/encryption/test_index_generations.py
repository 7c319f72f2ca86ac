"""A blind index that moves to another key without a pause: the indexes of both keys at every moment of a deployment."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Annotated, Any

import pytest

from kvmodels import (
    Database,
    Encrypted,
    Field,
    History,
    Index,
    Indexed,
    InvalidArgumentError,
    KeyRing,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    SchemaMismatchError,
    SchemaProgress,
    Unique,
    UniqueConstraint,
    UniqueViolationError,
    UnknownFieldError,
)
from kvmodels.schema.encryption.blind_values import key_id_in
from tests.encryption.models import RING

_NUMBERS = count()


def model(keys: int | tuple[int, ...]) -> type[Any]:
    """One release: the class with these index keys."""

    class Guest(KvModel, collection="guests"):
        id: PrimaryKey[int]
        passport: Annotated[str, Encrypted(index_key=keys), Unique(key=str.casefold)]
        city: Annotated[str | None, Encrypted(index_key=keys), Indexed()] = Field(default=None)
        tags: Annotated[list[str], Encrypted(index_key=keys), MultiIndexed()] = Field(default_factory=list)
        floor: int = 0
        room: Annotated[str, Encrypted(index_key=keys)] = "1"

        class Meta:
            history = History()
            indexes = (Index("floor", "city"), UniqueConstraint("floor", "room", "passport", name="bed"))

    return Guest


ONE, BOTH, TURNED, LAST = model(1), model((2, 1)), model((1, 2)), model(2)
DECLARED = ("passport", "city", "tags", "floor_city", "bed")


@pytest.fixture
def url() -> str:
    return f"memory://generations_{next(_NUMBERS)}"


def guest(cls: type[Any], number: int, **fields: Any) -> Any:
    values = {"passport": f"P-{number}", "city": ("Rome", "Oslo", None)[number % 3], "tags": ["a", f"t{number % 4}"]}
    return cls(id=number, floor=number % 2, **{**values, **fields})


def opened(url: str, cls: type[Any], ring: KeyRing = RING) -> Database:
    return Database(url, models=[cls], keys=ring)


def filled(url: str, number: int = 24) -> Database:
    db = opened(url, ONE)
    db[ONE].bulk_create([guest(ONE, one) for one in range(number)])
    return db


def key_ids(db: Database, number: int) -> frozenset[int | None]:
    """The ids of the keys of the blind values that a record holds."""
    stored: Any = db.kv.unsafe().get(("guests", number)).value
    return frozenset(map(key_id_in, stored["$kv"]["c"]))


def ask(db: Database, cls: type[Any]) -> None:
    """Every form of a query through the indexes, about records 0 to 23; none is refused."""
    guests = db[cls]
    assert guests.get(passport="p-3").id == 3
    assert guests.get_or_none(passport="nobody") is None
    assert [one.id for one in guests.filter(passport__in=["P-5", "p-7", "none"]).to_list()] in ([5, 7], [7, 5])
    assert {one.id for one in guests.filter(city="Oslo", id__lt=24)} == set(range(1, 24, 3))
    assert {one.id for one in guests.filter(city=None, id__lt=24)} == set(range(2, 24, 3))
    assert {one.id for one in guests.filter(city__in=["Rome", None], id__lt=24)} == set(range(24)) - set(
        range(1, 24, 3)
    )
    assert {one.id for one in guests.filter(tags__contains="t2", id__lt=24)} == set(range(2, 24, 4))
    assert {one.id for one in guests.filter(tags__contains_any=["t0", "t1"], id__lt=24)} >= {0, 1, 4, 5, 20, 21}
    assert {one.id for one in guests.filter(tags__contains_all=["a", "t3"], id__lt=24)} == set(range(3, 24, 4))
    assert {one.id for one in guests.filter(floor=1, city="Rome", id__lt=24)} == set(range(3, 24, 6))
    assert [one.id for one in guests.filter(floor=1, room="1", passport="P-9")] == [9]
    assert {one.id for one in guests.exclude(city="Rome").filter(id__lt=24)} == set(range(24)) - set(range(0, 24, 3))
    assert guests.filter(passport="p-4", city="Oslo").exists()
    with db.transaction() as tx:
        assert tx[cls].get(passport="P-6").id == 6


def write(db: Database, cls: type[Any], number: int) -> None:
    """Writes of each kind, none of which is refused; both values of a unique field are taken afterwards."""
    guests = db[cls]
    guests.insert(guest(cls, number))
    made, created = guests.get_or_create(passport=f"p-{number}", defaults={"id": number + 1})
    assert (made.id, created) == (number, False)
    guests.update_or_create(passport=f"P-{number}", defaults={"id": number, "room": "2"})
    again = guest(cls, number + 5, passport=f"p-{number}")
    assert len(guests.bulk_create([again], on_conflict="update", unique="passport")) == 1
    assert (again.id, guests.get(passport=f"P-{number}").city) == (number, again.city)
    with pytest.raises(InvalidArgumentError, match="equal values of the unique index") as twice:
        guests.bulk_create([guest(cls, one, passport="P") for one in (1, 2)], on_conflict="update", unique="passport")
    assert twice.value.value == "(encrypted)"
    with pytest.raises(UniqueViolationError) as caught:
        guests.insert(guest(cls, number + 6, passport=f"p-{number}"))
    assert caught.value.fields == ("passport",)
    assert caught.value.index is not None
    assert caught.value.index.partition("~")[0] == "passport"
    assert caught.value.existing_key == number
    with db.transaction() as tx:
        tx[cls].insert(guest(cls, number + 7))
        assert tx[cls].get(passport=f"p-{number + 7}").id == number + 7
        assert tx[cls].filter(city="Oslo", passport__in=[f"p-{number + 7}", "none"]).count() == (number % 3 == 0)
        tx[cls].remove(number + 7)
    guests.remove(number)


def test_the_names_of_indexes_and_columns():
    def names(cls: type[Any]) -> list[str]:
        return list(cls.__kv_schema__.indexes)

    assert names(ONE) == list(DECLARED)
    assert names(LAST) == [f"{name}~blind2" for name in DECLARED]
    assert names(BOTH) == [one for name in DECLARED for one in (f"{name}~blind2", name)]
    assert names(TURNED) == [one for name in DECLARED for one in (name, f"{name}~blind2")]

    class Mixed(KvModel, collection="mixed"):
        id: PrimaryKey[int]
        one: Encrypted[str]
        two: Annotated[str, Encrypted(index_key=(2, 1))]
        three: Annotated[str, Encrypted(index_key=(3, 2))]

        class Meta:
            indexes = (Index("one", "two"), Index("three", "two", "id"), Index("id", "one"))

    assert names(Mixed) == [
        *("one_two", "one_two~blind1_2"),
        *("three_two_id~blind3_2", "three_two_id~blind2", "three_two_id~blind3_1"),
        "id_one",
    ]


@pytest.mark.parametrize("between", [BOTH, TURNED], ids=["2_1", "1_2"])
def test_no_query_and_no_write_is_refused_in_three_steps(url: str, between: type[Any]):
    with filled(url) as first, opened(url, between) as second:
        for db, cls in ((first, ONE), (second, between), (first, ONE)):
            ask(db, cls)
            write(db, cls, 40)
        second[between].patch(1, room="1")
        assert key_ids(second, 1) == {1}, "no index of key 2 is listed yet"
        other = opened(url, between)  # all processes have the second release
        steps: list[str] = []

        def meanwhile(progress: SchemaProgress) -> None:
            steps.append(progress.step)
            for db in (second, other):
                ask(db, between)
                write(db, between, 40)

        assert second.apply(progress=meanwhile).complete
        assert steps.count("build") >= len(DECLARED)
        ask(first, ONE)
        with pytest.raises(SchemaMismatchError):
            first[ONE].remove(1)
        assert {key_ids(second, number) for number in range(24)} == {frozenset({1, 2})}
        assert second.check().ok
        third = opened(url, LAST)
        for name in DECLARED:
            assert second.drop_index(between, name)
            for db, cls in ((second, between), (other, between), (third, LAST)):
                ask(db, cls)
            for db in (second, other):
                write(db, between, 40)
        other[between].patch(2, room="1")
        assert key_ids(third, 2) == {2}, "no index of key 1 is listed any more"
        write(third, LAST, 40)
        assert third.plan().is_current
        assert third.check().ok
        assert second.check().ok
        other.close()
        third.close()


def test_the_first_key_that_is_built_answers(url: str):
    def used(db: Database, cls: type[Any]) -> str:
        assert db[cls].filter(passport="P-1").exists(), "which reads the header too"
        return str(db[cls].filter(passport="P-1").explain()).splitlines()[0].rpartition(" ")[2]

    with filled(url, 130) as first, opened(url, BOTH) as second, opened(url, TURNED) as turned:
        assert used(second, BOTH) == used(turned, TURNED) == "passport"
        seen: list[str] = []
        second.apply(progress=lambda progress: seen.append(used(second, BOTH)))
        assert seen[0] == "passport"
        assert seen[-1] == "passport~blind2"
        assert used(second, BOTH) == "passport~blind2"
        assert used(turned, TURNED) == "passport"
        second.drop_index(BOTH, "passport")
        assert used(second, BOTH) == used(turned, TURNED) == "passport~blind2"
        assert second[BOTH].filter(passport="P-1").using_index("passport").count() == 1
        assert first[ONE].get(1).passport == "P-1"


def test_both_indexes_refuse_a_value_that_is_taken(url: str):
    """Also during the build; each refuses it alone, as the other one shows whose slot is lost."""
    with filled(url, 130) as first, opened(url, BOTH) as second:
        first.close()

        def refused_by(number: int) -> str | None:
            with pytest.raises(UniqueViolationError) as caught:
                second[BOTH].insert(guest(BOTH, 990, passport=f"p-{number}", room="none"))
            assert (caught.value.values, caught.value.existing_key) == (("(encrypted)",), number)
            return caught.value.index

        def meanwhile(progress: SchemaProgress) -> None:
            if progress.index == "passport~blind2" and progress.scanned == 100:
                assert {refused_by(number) for number in (0, 99, 129)} == {"passport"}
                second[BOTH].insert(guest(BOTH, 200))
                assert refused_by(200) == "passport"
                assert lost(second, "guests_by_passport", 5) == lost(second, "guests_by_passport", 200) == 1
                assert {refused_by(number) for number in (5, 200)} == {"passport~blind2"}
                second.check(repair="all")

        assert second.apply(progress=meanwhile).complete
        assert second.check().ok
        assert lost(second, "guests_by_passport", 7) == 1
        assert refused_by(7) == "passport~blind2"
        assert lost(second, "guests_by_passport~blind2", 8) == 1
        assert refused_by(8) == "passport"
        found = second.check()
        assert (found.ok, len(found.missing)) == (False, 2)
        assert second.check(repair="all").repaired
        assert second.check().ok
        second.drop_index(BOTH, "passport")
        assert refused_by(12) == "passport~blind2"
        assert second.violations(BOTH) == []


def lost(db: Database, prefix: str, number: int) -> int:
    """Remove the slots of a record from an index, as damage does; return their number."""
    raw = db.kv.unsafe()
    slots = [entry.key for entry in raw.list((prefix,)) if entry.value == [number] or entry.value == number]
    for key in slots:
        raw.delete(key)
    return len(slots)


def test_a_record_that_another_caller_creates_meanwhile_is_found_by_its_encrypted_field(url: str):
    made: list[Callable[[], object]] = []

    class Member(KvModel, collection="members"):
        id: PrimaryKey[int]
        email: Annotated[str, Encrypted(index_key=(2, 1)), Unique(key=str.casefold)]
        note: str = Field(default_factory=lambda: str(made.pop()() if made else ""))

    with Database(url, models=[Member], keys=RING) as db:
        made.append(lambda: db[Member].create(id=1, email="a@x.org", note=""))
        found, created = db[Member].get_or_create(email="A@x.org", defaults={"id": 2})
        assert (found.id, created) == (1, False)
        made.append(lambda: db[Member].create(id=3, email="b@x.org", note=""))
        found, created = db[Member].update_or_create(email="B@x.org", defaults={}, create_defaults={"id": 4})
        assert (found.id, created) == (3, False)


def test_a_key_that_one_process_lacks_refuses_it_as_before(url: str):
    with filled(url), opened(url, BOTH, KeyRing({1: bytes(range(32))})) as db:
        assert db[BOTH].get(1).passport == "P-1"
        for call in (
            lambda: db[BOTH].get(passport="P-1"),
            lambda: db[BOTH].insert(guest(BOTH, 60)),
        ):
            with pytest.raises(SchemaMismatchError, match="does not have the key"):
                call()


def test_a_process_with_another_key_answers_by_the_right_one_or_is_refused(url: str):
    wrong = KeyRing({1: bytes(range(32)), 2: bytes(32)})
    with filled(url), opened(url, BOTH) as complete, opened(url, BOTH, wrong) as db:
        parsed = db[BOTH].filter(passport="P-1")
        complete.apply()
        assert db[BOTH].get(1).id == 1, "which reads the header"
        assert [one.id for one in parsed] == [1], "by the key that is the right one"
        for call in (
            lambda: parsed.using_index("passport~blind2").count(),
            lambda: db[BOTH].get(passport="P-1"),
            lambda: db[BOTH].insert(guest(BOTH, 60)),
        ):
            with pytest.raises(SchemaMismatchError, match="another key under the id"):
                call()
        complete.drop_index(BOTH, "passport")
        assert db[BOTH].get(1).id == 1
        with pytest.raises(SchemaMismatchError, match="another key under the id"):
            parsed.to_list()


def test_the_column_of_one_key_has_no_name_in_queries(url: str):
    with opened(url, BOTH) as db:
        guests: Any = db[BOTH]
        name = "passport~casefold~blind1"
        assert name in BOTH.__kv_schema__.computed
        for call in (
            lambda: guests.filter(**{name: b""}),
            lambda: guests.filter(**{f"{name}__in": [b""]}),
            lambda: guests.get(**{name: b""}),
            lambda: guests.order_by(name),
            lambda: guests.values(name),
            lambda: guests.values_list(name),
        ):
            with pytest.raises(UnknownFieldError):
                call()
