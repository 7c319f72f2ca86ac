"""The life of a history: added to records, changed, given up, and refused to releases that do not know it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest

from kvmodels import (
    CASCADE,
    SET_NULL,
    Database,
    Field,
    ForeignKey,
    History,
    HistoryExpiredError,
    IndexNotReadyError,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    Revision,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    UnknownFieldError,
    ValueTooLargeError,
)
from kvmodels.catalog import catalogue
from kvmodels.flows import context
from tests.kv.stores import Clock


class Plain(KvModel, collection="notes"):
    id: PrimaryKey[int]
    text: str = ""


class Kept(KvModel, collection="notes"):
    id: PrimaryKey[int]
    text: str = ""

    class Meta:
        history = History()


class Short(KvModel, collection="notes"):
    id: PrimaryKey[int]
    text: str = ""

    class Meta:
        history = History(keep=timedelta(seconds=10))


def text(revision: Revision[Any]) -> str:
    """Return the text of an old version."""
    assert revision.record is not None
    found: str = revision.record.text
    return found


def moment(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.ms / 1_000, UTC)


def test_a_history_that_is_added_to_records_begins_with_the_commit_that_makes_it_readable(url_of: Callable[[str], str]):
    clock, url = Clock(), url_of("sqlite")
    with Database(url, models=[Plain], clock=clock) as db:
        for key in range(3):
            db[Plain].create(id=key, text="old")
    clock.ms += 1_000
    before = moment(clock)
    with Database(url, models=[Kept], clock=clock) as db:
        assert [step.rule for step in db.plan().steps] == ["history_added"]
        with pytest.raises(IndexNotReadyError):
            list(db[Kept].history(1))
        clock.ms += 1_000
        report = db.apply()
        assert report.complete
        assert db.plan().is_current
        begun = moment(clock)
        clock.ms += 1_000
        db[Kept].patch(1, text="new")
        first, second = db[Kept].history(1)
        assert (first.changes, second.changes) == ({"text": ("old", "new")}, None)
        assert (second.at, second.record) == (None, Kept(id=1, text="old"))
        assert [one.text for one in db[Kept].as_of(begun).filter().allow_scan()] == ["old"] * 3
        with pytest.raises(HistoryExpiredError):
            db[Kept].as_of(before).get(1)
        assert db.check().ok


def test_a_release_that_does_not_declare_the_history_writes_it_all_the_same(url_of: Callable[[str], str]):
    url = url_of("sqlite")
    with Database(url, models=[Kept]) as new, Database(url, models=[Plain]) as old:
        new[Kept].create(id=1, text="a")
        old[Plain].patch(1, text="b")
        old[Plain].remove(1)
        assert [text(one) for one in new[Kept].history(1)] == ["b", "a"]
        assert [step.rule for step in old.plan().steps] == ["history_undeclared"]
        with pytest.raises(SchemaChangeRefusedError):
            old.apply()
        old.apply(allow=("drop_history",))
        assert old.plan().is_current
        assert not list(old.kv.unsafe().list(prefix=("__kvmodels__", "history")))
        assert not list(old.kv.unsafe().list(prefix=("__kvmodels__", "trash")))
        with pytest.raises(IndexNotReadyError):
            list(new[Kept].history(1))


def test_a_shorter_lifetime_moves_the_horizon_and_hides_old_rows(url_of: Callable[[str], str]):
    clock, url = Clock(), url_of("sqlite")
    with Database(url, models=[Kept], clock=clock) as db:
        db[Kept].create(id=1, text="a")
        clock.ms += 1_000
        early = moment(clock)
        clock.ms += 1_000
        db[Kept].patch(1, text="b")
    with Database(url, models=[Short], clock=clock) as db:
        assert [step.rule for step in db.plan().steps] == ["history_changed"]
        assert db.apply().complete
        clock.ms += 5_000
        db[Short].patch(1, text="c")
        assert db[Short].as_of(early).get(1).text == "a", "this row is one of the time before, and kept for ever"
        clock.ms += 11_000
        with pytest.raises(HistoryExpiredError):
            db[Short].as_of(early).get(1)
        assert [text(one) for one in db[Short].history(1)] == ["c", "a"], "the row of b has passed its deadline"
        assert db[Short].history(1).page(5).items[0].changes is None


def test_a_process_reads_on_when_another_one_changes_the_lifetime(url_of: Callable[[str], str]):
    clock, url = Clock(), url_of("sqlite")
    reads: list[Callable[[Database], Any]] = [
        lambda db: [text(one) for one in db[Kept].history(1)],
        lambda db: getattr(db[Kept].history(1).at(moment(clock)), "record", None),
        lambda db: db[Kept].as_of(moment(clock)).get(1),
        lambda db: db[Kept].as_of(moment(clock)).get_many([1]),
        lambda db: list(db[Kept].as_of(moment(clock)).filter().allow_scan()),
        lambda db: [one.key for one in db[Kept].trash()],
    ]
    with Database(url, models=[Kept], clock=clock) as db:
        db[Kept].create(id=1, text="a")
        db[Kept].create(id=2)
        db[Kept].remove(2)
        early = moment(clock)
        expected = [read(db) for read in reads]
        for read, answer in zip(reads, expected, strict=True):
            for model in (Short, Kept):
                with Database(url, models=[model], clock=clock) as other:
                    assert other.apply().complete
                assert read(db) == answer
        with Database(url, models=[Short], clock=clock) as other:
            other.apply()
        clock.ms += 11_000
        with pytest.raises(HistoryExpiredError):
            db[Kept].as_of(early).get(1)


def test_records_that_could_not_be_ended_are_listed_and_hold_the_history_back(url_of: Callable[[str], str]):
    url = url_of("sqlite")
    with Database(url, models=[Plain]) as db:
        db[Plain].create(id=1, expire_in=1_000)
        db[Plain].create(id=2)
    with Database(url, models=[Kept]) as db:
        report = db.apply()
        assert not report.complete
        assert [(one.key, one.kind) for one in report.builds[0].violations] == [(1, "expires")]
        assert [(one.index, one.key, one.kind) for one in db.violations(Kept)] == [("history", 1, "expires")]
        assert [str(one) for one in db.violations(Kept, "history")] == ["notes.history: 1 expires"]
        assert [one.key for one in db.violations(Kept, limit=1)] == [1]
        db[Kept].patch(2, text="while it waits")
        db[Kept].save(db[Kept].get(1), expire_in=None)
        assert db.apply().complete
        assert not db.violations(Kept)
        assert not db.violations(Kept, "history")
    with Database("memory://", models=[Plain]) as db, pytest.raises(UnknownFieldError):
        db.violations(Plain, "history")
        assert [text(one) for one in db[Kept].history(2)] == ["while it waits", ""]


def test_a_lifetime_is_refused_for_records_with_a_history():
    with Database("memory://", models=[Kept]) as db:
        with pytest.raises(InvalidArgumentError):
            db[Kept].create(id=1, expire_in=10)
        with pytest.raises(InvalidArgumentError), db.transaction() as tx:
            tx[Kept].create(id=1, expire_in=10)
        assert db[Kept].get_or_none(1) is None


def test_a_record_whose_row_would_not_fit_is_refused_before_it_is_stored():
    with Database("memory://", models=[Kept]) as db:
        limit = 64 * 1024
        largest = 0
        for size in (limit - 2_000, limit - 100):
            try:
                db[Kept].create(id=size, text="x" * size)
                largest = size
            except ValueTooLargeError as error:
                assert error.limit == "max_value_bytes"  # noqa: PT017 - the other size is stored
        if largest:
            with db.acting("a" * 200, reason="r" * 200):
                db[Kept].remove(largest)


def test_an_older_release_is_refused_by_the_section(url_of: Callable[[str], str]):
    url = url_of("sqlite")
    with Database(url, models=[Kept]) as db:
        db[Kept].create(id=1)
        header: Any = db.kv.unsafe().get(("__kvmodels__", "header")).value
        assert header["format"] == 1
        assert set(header["collections"]["notes"]["history"]) == {
            "state",
            "keep",
            "exclude",
            "only",
            "since",
            "begin",
            "keeps",
            "held",
        }


class Owner(KvModel, collection="owners"):
    id: PrimaryKey[int]


class Paper(KvModel, collection="papers"):
    id: PrimaryKey[int]
    owner: Annotated[ForeignKey[int | None, Owner], CASCADE] = Field(default=None)
    reader: Annotated[ForeignKey[int | None, Owner], SET_NULL] = Field(default=None)

    class Meta:
        history = History()


def removed_in_a_transaction(db: Database) -> None:
    with db.transaction() as tx:
        tx[Owner].remove(1)


REMOVALS: list[Callable[[Database], object]] = [
    lambda db: db[Owner].remove(1),
    lambda db: db[Owner].remove(2),
    lambda db: db[Owner].remove(db[Owner].get(1)),
    lambda db: db[Owner].filter(id=2).delete(),
    lambda db: db[Owner].remove_cascade(1, resume_id="owner"),
    removed_in_a_transaction,
]


def test_an_older_release_is_refused_a_cascade_from_another_collection(
    url_of: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
):
    with Database(url_of("sqlite"), models=[Owner, Paper]) as new:
        new[Owner].bulk_create([Owner(id=key) for key in (1, 2, 3)])
        new[Paper].create(id=1, owner=1)
        new[Paper].create(id=2, reader=2)
        with monkeypatch.context() as patch:
            patch.setattr(catalogue, "history_in", lambda section: None)  # an older release does not know the section
            patch.setattr(context, "_headers", {})
            with Database(url_of("sqlite"), models=[Owner, Paper]) as old:
                for remove in REMOVALS:
                    with pytest.raises(SchemaMismatchError, match="does not know"):
                        remove(old)
                old[Owner].remove(3)  # no record refers to it
        assert [one.id for one in new[Owner].all()] == [1, 2]
        assert [(one.owner, one.reader) for one in new[Paper].all()] == [(1, None), (None, 2)]
        new[Owner].remove(1)
        assert [one.key for one in new[Paper].trash()] == [1]
        assert new.check().ok
