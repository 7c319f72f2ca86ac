"""All changes of a transaction are compiled together: what one record gives up another may take, in any order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kvmodels import AlreadyExistsError, Count, Database, Sum, UniqueViolationError
from tests.transactions.models import Member, opened


@pytest.fixture
def db():
    with opened() as database:
        database[Member].create(id=1, email="one", score=10)
        database[Member].create(id=2, email="two", score=20)
        yield database
        report = database.check()
        assert report.ok, str(report)


def emails(db: Database) -> dict[int, str | None]:
    return {member.id: member.email for member in db[Member]}


def totals(db: Database) -> dict[str, Any]:
    """Return the values of the counters."""
    return db[Member].filter(team="red").aggregate(Count(), Sum("score"))


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2))))
def test_review_01_two_records_exchange_their_unique_values(db, order):
    with db.transaction() as tx:
        loaded = {number: tx[Member].get(number) for number in (1, 2)}
        loaded[1].email, loaded[2].email = "two", "one"
        first, second = order
        tx[Member].save(loaded[first])
        with pytest.raises(Member.MultipleObjectsReturned):
            tx[Member].get(email=loaded[first].email)
        tx[Member].save(loaded[second])
        assert [tx[Member].get(email=loaded[number].email).id for number in order] == [first, second]
    assert emails(db) == {1: "two", 2: "one"}
    assert db[Member].get(email="two").id == 1


@pytest.mark.parametrize("released_first", [True, False])
def test_review_01_a_value_that_one_record_gives_up_is_taken_by_another_in_both_orders(db, released_first):
    with db.transaction() as tx:
        steps = [lambda: tx[Member].patch(1, email="new"), lambda: tx[Member].patch(2, email="one")]
        for step in steps if released_first else reversed(steps):
            step()
    assert emails(db) == {1: "new", 2: "one"}
    assert db[Member].get(email="one").id == 2


@pytest.mark.parametrize("removed_first", [True, False])
def test_review_01_a_record_is_removed_and_another_created_with_its_value(db, removed_first):
    with db.transaction() as tx:
        steps = [lambda: tx[Member].remove(1), lambda: tx[Member].create(id=3, email="one")]
        for step in steps if removed_first else reversed(steps):
            step()
        assert tx[Member].get(email="one").id == 3
    assert emails(db) == {2: "two", 3: "one"}


def test_a_record_is_removed_and_created_again_under_its_key(db):
    with db.transaction() as tx:
        tx[Member].remove(1)
        assert tx[Member].get_or_none(1) is None
        assert tx[Member].get_or_none(email="one") is None
        tx[Member].create(id=1, email="one", score=11)
    assert db[Member].get(email="one").score == 11
    assert totals(db) == {"count": 2, "score__sum": 31}


def test_review_01_a_duplicate_inside_of_a_batch_is_refused_whole(db):
    before = emails(db)
    with pytest.raises(UniqueViolationError) as caught, db.transaction() as tx:
        tx[Member].bulk_create([Member(id=5, email="same"), Member(id=6), Member(id=7, email="same")])
    assert (caught.value.index, caught.value.values, caught.value.position) == ("email", ("same",), 2)
    assert emails(db) == before
    with pytest.raises(AlreadyExistsError), db.transaction() as tx:
        tx[Member].bulk_create([Member(id=5), Member(id=5)])
    assert emails(db) == before


def test_a_duplicate_among_separate_creates_is_refused_at_the_commit(db):
    with pytest.raises(UniqueViolationError) as caught, db.transaction() as tx:
        tx[Member].create(id=5, email="same")
        tx[Member].create(id=6, email="same")
    assert (caught.value.index, caught.value.values) == ("email", ("same",))
    assert {caught.value.key, caught.value.existing_key} == {5, 6}
    assert set(emails(db)) == {1, 2}


def test_a_value_of_a_record_outside_of_the_transaction_is_refused_at_the_commit(db):
    with pytest.raises(UniqueViolationError) as caught, db.transaction() as tx:
        made = tx[Member].create(id=5, email="one")
    assert (caught.value.key, caught.value.existing_key) == (5, 1)
    assert not made.is_persisted
    assert set(emails(db)) == {1, 2}


def test_review_01_two_saves_of_one_record_count_once_in_an_aggregate(db):
    with db.transaction() as tx:
        member = tx[Member].get(1)
        for score in (11, 12, 13):
            member.score = score
            tx[Member].save(member)
        tx[Member].patch(1, score=14)
        found = list(tx[Member].filter(team="red").values("id", "score"))
        assert {one["id"]: one["score"] for one in found} == {1: 14, 2: 20}
        assert tx[Member].filter(team="red").aggregate(Count(), Sum("score")) == {"count": 2, "score__sum": 34}
    assert db[Member].get(1).score == 14
    assert totals(db) == {"count": 2, "score__sum": 34}


def test_a_record_that_comes_and_goes_leaves_nothing(db):
    with db.transaction() as tx:
        tx[Member].create(id=9, email="nine", tags=["a", "b"], score=9)
        assert tx[Member].filter(tags__contains="a").count() == 1
        tx[Member].remove(9)
        assert tx[Member].filter(tags__contains="a").count() == 0
    assert set(emails(db)) == {1, 2}
    assert totals(db) == {"count": 2, "score__sum": 30}


def test_K17_mixed_inserts_updates_and_removals_of_two_collections_are_one_commit(db):
    """Entries are removed in the commit itself, also those of the collection that was not chosen last."""
    with db.transaction() as tx:
        tx[Member].remove(1)
        tx[Member].create(id=3, email="one", tags=["a"])
        tx[Member].patch(2, email="zwei", city="y")
    with db.transaction() as tx:
        tx[Member].create(id=1, email="two")
    assert emails(db) == {1: "two", 2: "zwei", 3: "one"}
    assert [member.id for member in db[Member].filter(city="x")] == [1, 3]


def test_K18_an_insert_and_a_removal_in_one_collection_are_one_commit(db):
    with db.transaction() as tx:
        made = tx[Member].create(id=3, email="three")
        removed = tx[Member].remove(2)
    assert removed is True
    assert made.versionstamp == tx.versionstamp
    assert emails(db) == {1: "one", 3: "three"}


@pytest.mark.parametrize("numbers", [(1, 2, 3), (3, 1, 2)])
def test_three_records_pass_their_values_on_in_a_circle(db, numbers):
    db[Member].create(id=3, email="three")
    with db.transaction() as tx:
        values = [tx[Member].get(number).email for number in numbers]
        for number, value in zip(numbers, [*values[1:], values[0]], strict=True):
            tx[Member].patch(number, email=value)
    assert set(emails(db).values()) == {"one", "two", "three"}
    assert [db[Member].get(email=value).id for value in values] == [numbers[-1], *numbers[:-1]]
