"""The state of the caller's objects: none before the commit, their version after it, the old state after a failure."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from kvmodels import AlreadyExistsError, DoesNotExist, StaleObjectError, TransactionConflictError
from tests.transactions.models import Member, opened, raised


@pytest.fixture
def db():
    with opened() as database:
        database[Member].create(id=1, email="one", score=10)
        yield database


def test_review_15_objects_get_their_versions_with_the_commit(db):
    with db.transaction() as tx:
        loaded, made = tx[Member].get(1), Member(id=2)
        before = loaded.versionstamp
        loaded.score = 11
        assert tx[Member].save(loaded) is loaded
        assert tx[Member].insert(made) is made
        read = tx[Member].get(2)
        patched = tx[Member].patch(1, city="y")
        assert [one.versionstamp for one in (loaded, made, read, patched)] == [None] * 4
        assert all(one.is_persisted for one in (loaded, made, read, patched))
        assert tx.versionstamp is None
    stamp = tx.versionstamp
    assert stamp is not None
    assert stamp > before
    assert [made.versionstamp, read.versionstamp, patched.versionstamp] == [stamp] * 3
    assert db[Member].get(2).versionstamp == db[Member].get(1).versionstamp == stamp
    for one in (made, read, patched):
        db[Member].save(db[Member].refresh(one))


def test_review_15_objects_are_as_they_were_when_the_body_raises(db):
    loaded, made = db[Member].get(1), Member(id=2)
    before = (loaded.versionstamp, loaded.model_dump())
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        loaded.score = 11
        tx[Member].save(loaded)
        tx[Member].insert(made)
        read = tx[Member].get(2)
        raise ZeroDivisionError
    assert loaded.versionstamp == before[0]
    assert not made.is_persisted
    assert loaded.score == 11, "what the caller has assigned is not taken back"
    loaded.score = 10
    assert loaded.model_dump() == before[1]
    db[Member].save(loaded)
    db[Member].save(made)
    with pytest.raises(StaleObjectError, match="not committed") as caught:
        db[Member].save(read)
    assert "Load it again" in str(caught.value)


def test_review_15_objects_are_as_they_were_after_a_conflict(db):
    loaded, made = db[Member].get(1), Member(id=2)
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        loaded.score += 1
        tx[Member].save(loaded)
        tx[Member].save(made)
        db[Member].patch(1, city="y")
    assert not made.is_persisted
    assert isinstance(raised(lambda: db[Member].save(loaded)), StaleObjectError)
    assert db[Member].save(db[Member].refresh(loaded)).city == "y"


def test_validated_values_come_with_the_commit(db):
    with db.transaction() as tx:
        made = Member(id=2)
        wrong: Any = "12"
        made.score = wrong
        tx[Member].save(made)
        assert made.score is wrong
        assert tx[Member].get(2).score == 12
    assert made.score == 12


def test_what_is_assigned_after_the_save_stays_and_is_not_stored(db):
    with db.transaction() as tx:
        member = tx[Member].get(1)
        member.score = 11
        tx[Member].save(member)
        member.city = "later"
    assert (member.score, member.city) == (11, "later")
    assert db[Member].get(1).city == "x"
    db[Member].save(member)
    assert db[Member].get(1).city == "later"


def test_one_object_may_be_saved_again_and_again(db):
    with db.transaction() as tx:
        made = tx[Member].create(id=2)
        for score in (1, 2, 3):
            made.score = score
            tx[Member].save(made)
        tx[Member].remove(made)
        assert not made.is_persisted
        tx[Member].save(made)
    assert db[Member].get(2).score == 3
    assert db[Member].get(2).versionstamp == made.versionstamp


def test_of_two_loaded_copies_of_a_record_the_second_is_stale(db):
    with db.transaction() as tx:
        one, other = tx[Member].get(1), tx[Member].get(1)
        tx[Member].save(one)
        error = raised(lambda: tx[Member].save(other))
        assert isinstance(error, StaleObjectError)
        assert (error.model, error.key) == ("Member", 1)
        assert isinstance(raised(lambda: tx[Member].remove(other)), StaleObjectError)
        tx[Member].save(other, force=True)
    assert one.versionstamp is None, "its version was never committed"
    assert other.versionstamp == tx.versionstamp
    assert isinstance(raised(lambda: db[Member].save(one)), StaleObjectError)
    db[Member].save(other)


def test_a_copy_with_changes_may_be_saved_in_place_of_its_object(db):
    with db.transaction() as tx:
        patched = tx[Member].patch(1, score=11)
        changed = tx[Member].save(patched.model_copy(update={"city": "y"}))
        again = tx[Member].save(copy.deepcopy(changed))
    assert again.versionstamp == tx.versionstamp
    assert (db[Member].get(1).score, db[Member].get(1).city) == (11, "y")
    assert isinstance(raised(lambda: db[Member].save(patched)), StaleObjectError)


def test_objects_loaded_before_are_checked_as_outside(db):
    loaded = db[Member].get(1)
    db[Member].patch(1, score=11)
    with db.transaction() as tx:
        error = raised(lambda: tx[Member].save(loaded))
        assert isinstance(error, StaleObjectError)
        assert error.expected == loaded.versionstamp
        tx[Member].save(tx[Member].refresh(loaded))
    assert loaded.versionstamp == tx.versionstamp


def test_errors_of_keys_are_raised_at_once(db):
    with db.transaction() as tx:
        tx[Member].create(id=2)
        for wrong, kind in (
            (lambda: tx[Member].create(id=2), AlreadyExistsError),
            (lambda: tx[Member].create(id=1), AlreadyExistsError),
            (lambda: tx[Member].patch(3, score=1), DoesNotExist),
            (lambda: tx[Member].get(3), Member.DoesNotExist),
        ):
            assert isinstance(raised(wrong), kind)
        tx[Member].remove(1)
        assert isinstance(raised(lambda: tx[Member].patch(1, score=1)), DoesNotExist)
        assert tx[Member].remove(1) is False
    assert [member.id for member in db[Member]] == [2]


def test_a_function_that_returns_another_object_leaves_it_alone_until_the_commit(db):
    mine = Member(id=1, score=50)
    with db.transaction() as tx:
        assert tx[Member].mutate(1, lambda _: mine) is mine
        assert mine.versionstamp is None
    assert mine.versionstamp == tx.versionstamp
    assert db[Member].get(1).score == 50


def test_a_pickled_object_is_stale_elsewhere_before_the_commit_and_current_after_it(db):
    with db.transaction() as tx:
        made = tx[Member].create(id=2)
        early = pickle.dumps(made)
    late = pickle.loads(pickle.dumps(made))
    assert late.versionstamp == made.versionstamp
    db[Member].save(late)
    assert isinstance(raised(lambda: db[Member].save(pickle.loads(early))), StaleObjectError)


def test_versions_of_failed_transactions_are_never_taken_for_each_other(db):
    kept = []
    for score in (1, 2):
        with pytest.raises(ZeroDivisionError), db.transaction() as tx:
            tx[Member].patch(1, score=score)
            kept.append(tx[Member].get(1))
            raise ZeroDivisionError
    with db.transaction() as tx:
        tx[Member].patch(1, score=3)
        for one in kept:
            with pytest.raises(StaleObjectError):
                tx[Member].save(one)
    assert db[Member].get(1).score == 3
