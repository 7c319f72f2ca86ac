"""The stored rows of histories, as the page of the layout shows them, and scenes of writers that meet."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest

from kvmodels import (
    CASCADE,
    SET_NULL,
    AlreadyExistsError,
    AsyncDatabase,
    Database,
    DoesNotExist,
    Field,
    ForeignKey,
    History,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    StaleObjectError,
)
from kvmodels.catalog.keyspace import history_prefix
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import encode_key
from kvmodels.indexing import compiler, versions
from kvmodels.indexing.versions import CommitMoment, staged
from tests.kv.stores import Clock


class Owner(KvModel, collection="owners"):
    id: PrimaryKey[int]
    name: str = ""

    class Meta:
        history = History(keep=timedelta(seconds=100))


class Pet(KvModel, collection="pets"):
    id: PrimaryKey[int]
    owner: Annotated[ForeignKey[int | None, Owner], CASCADE] = Field(default=None)
    sitter: Annotated[ForeignKey[int | None, Owner], SET_NULL] = Field(default=None)

    class Meta:
        history = History()


def rows(db: Database, kind: str) -> dict[tuple[Any, ...], Any]:
    """Return the rows of a kind without the first two parts of their keys."""
    return {entry.key[2:]: entry.value for entry in db.kv.unsafe().list(prefix=("__kvmodels__", kind))}


def test_each_row_has_the_items_of_the_page_and_no_others():
    clock = Clock()
    start = clock.ms
    with Database("memory://", models=[Owner, Pet], clock=clock) as db:
        with db.acting("ada", reason="first"):
            owner = db[Owner].create(id=1, name="a")
        pet, guest = db[Pet].create(id=1, owner=1), db[Pet].create(id=2, sitter=1)
        first = owner.versionstamp
        assert db.kv.get(("owners", 1)).value == {
            "id": 1,
            "name": "a",
            "$kv": {"h": {"t": start, "by": "ada", "why": "first"}},
        }
        clock.ms += 1_000
        with db.acting("bob"):
            second = db[Owner].patch(1, name="b").versionstamp
        clock.ms += 1_000
        db[Owner].remove(1)
        note = {"t": start, "by": "ada", "why": "first"}
        assert rows(db, "history") == {
            ("owners", 1, first): {
                "doc": {"id": 1, "name": "a", "$kv": {"h": note}},
                "end": {"t": start + 1_000, "by": "bob"},
                "x": start + 101_000,
            },
            ("owners", 1, second): {
                "doc": {"id": 1, "name": "b", "$kv": {"h": {"t": start + 1_000, "by": "bob", "p": first}}},
                "end": {"t": start + 2_000},
                "gone": True,
                "x": start + 102_000,
            },
            ("pets", 1, pet.versionstamp): {
                "doc": {"id": 1, "owner": 1, "sitter": None, "$kv": {"h": {"t": start}}},
                "end": {"t": start + 2_000},
                "gone": True,
            },
            ("pets", 2, guest.versionstamp): {
                "doc": {"id": 2, "owner": None, "sitter": 1, "$kv": {"h": {"t": start}}},
                "end": {"t": start + 2_000},
            },
        }
        assert rows(db, "trash") == {
            ("owners", 1): {"begin": second, "x": start + 102_000},
            ("pets", 1): {"begin": pet.versionstamp},
        }
        ((key, listed),) = rows(db, "also").items()
        assert key == ("owners", 1, second, 0)
        assert sorted(map(tuple, (map(str, one) for one in listed["also"]))) == [
            ("pets", "[1]", pet.versionstamp, "gone"),
            ("pets", "[2]", guest.versionstamp, "sitter"),
        ]
        restored = db[Owner].restore(1, also=True)
        assert (restored.others, restored.left_out) == (2, ())
        assert (db[Pet].get(1).owner, db[Pet].get(2).sitter) == (1, 1)
        assert rows(db, "trash") == {}


def test_the_bytes_of_a_row_stay():
    key = history_prefix("c") + encode_key((7, "000661639c777ad50000"))
    assert key.hex() == (
        "025f5f6b766d6f64656c735f5f0002686973746f727900026300150702303030363631363339633737376164353030303000"
    )
    codec = MsgpackCodec()
    value = {"doc": {"id": 7, "$kv": {"h": {"t": 1}}}, "end": {"t": 2, "by": "a"}, "gone": True, "x": 3}
    assert codec.encode_document(value)[0].hex() == (
        "84a3646f6382a2696407a3246b7681a16881a17401a3656e6482a17402a26279a161a4676f6e65c3a17803"
    )


def test_a_restore_beside_a_restore_and_a_forget_happens_once():
    with Database("memory://", models=[Owner]) as db:
        owners = db[Owner]
        owners.create(id=1)
        owners.remove(1)
        assert owners.forget(1) == 1
        with pytest.raises(DoesNotExist):
            owners.restore(1)
        assert not rows(db, "history")
        owners.create(id=1)
        with pytest.raises(AlreadyExistsError):
            owners.forget(1)
        owners.patch(1, name="x")
        assert owners.forget(1, including=True) == 1
        assert not rows(db, "history")
        assert not rows(db, "trash")
        assert owners.get_or_none(1) is None


def test_a_rename_ends_the_old_key_and_begins_the_new_one():
    with Database("memory://", models=[Pet, Owner]) as db:
        pets = db[Pet]
        pets.create(id=1)
        pets.create(id=5)
        pets.remove(5)
        pets.rename(1, 5)
        (old,) = pets.history(1)
        assert old.ended is not None
        assert (old.ended.removed, old.ended.renamed_to) == (True, 5)
        assert [one.changes is None for one in pets.history(5)] == [False, False]
        assert list(pets.trash()) == []


def test_a_transaction_writes_one_row_for_each_record():
    with Database("memory://", models=[Owner]) as db:
        db[Owner].create(id=1, name="a")
        with db.transaction() as tx:
            tx[Owner].patch(1, name="b")
            tx[Owner].patch(1, name="c")
            tx[Owner].create(id=2)
            tx[Owner].remove(2)
            assert len(list(tx[Owner].history(1))) == 1, "what is not committed is not in the history"
        assert next(iter(db[Owner].history(1))).changes == {"name": ("a", "c")}
        assert len(list(db[Owner].history(1))) == 2
        assert list(db[Owner].history(2)) == []
        with db.transaction() as tx:
            tx[Owner].remove(1)
            tx[Owner].create(id=1, name="d")
        assert next(iter(db[Owner].history(1))).changes == {"name": ("c", "d")}
        assert list(db[Owner].trash()) == []


def test_one_commit_has_one_time_that_is_not_below_those_of_the_versions_that_it_ends(monkeypatch: pytest.MonkeyPatch):
    clock, behind = Clock(), [0]

    def with_slow_clock(changes: Any, codec: Any, moment: CommitMoment, *, is_read: bool) -> Any:
        """Compile as a process does whose clock is slow, as that of another server may be."""
        return staged(changes, codec, moment._replace(now_ms=moment.now_ms - behind[0]), is_read=is_read)

    monkeypatch.setattr(compiler, "staged", with_slow_clock)
    with Database("memory://", models=[Owner], clock=clock) as db:
        db[Owner].create(id=1)
        clock.ms += 5_000
        db[Owner].create(id=2)
        late = next(iter(db[Owner].history(2))).at
        behind[0] = 4_000
        db[Owner].bulk_create([Owner(id=1, name="x"), Owner(id=2, name="x")], on_conflict="update")
        assert [next(iter(db[Owner].history(key))).at for key in (1, 2)] == [late, late]


def test_an_object_that_a_transaction_has_read_of_its_own_writes_ends_the_right_version():
    with Database("memory://", models=[Owner]) as db, db.acting("ada"):
        with db.transaction() as tx:
            tx[Owner].create(id=1, name="a")
            held = tx[Owner].get(1)
        held.name = "b"
        db[Owner].save(held)
        assert [one.actor for one in db[Owner].history(1)] == ["ada", "ada"]
        stale = db[Owner].get(1)
        db[Owner].patch(1, name="c")
        with pytest.raises(StaleObjectError):
            db[Owner].remove(stale)
        assert len(list(db[Owner].history(1))) == 3


def test_threads_have_no_actor_and_tasks_inherit_it():
    with Database("memory://", models=[Owner]) as db:
        with db.acting("ada", reason="outer"), db.acting("bob"):
            thread = threading.Thread(target=lambda: db[Owner].create(id=1))
            thread.start()
            thread.join()
            db[Owner].create(id=2)
        assert [next(iter(db[Owner].history(key))).actor for key in (1, 2)] == [None, "bob"]
        for wrong in ("", "x" * 201, None, "\ud800"):
            with pytest.raises(InvalidArgumentError), db.acting(wrong):  # type: ignore[arg-type]
                pass


def test_the_asynchronous_facade_keeps_and_reads_histories():
    async def story() -> list[Any]:
        async with AsyncDatabase("memory://", models=[Owner]) as db:
            owners = db[Owner]
            with db.acting("ada"):
                await asyncio.gather(*(owners.create(id=number) for number in range(3)))
            await owners.remove(1)
            assert [one.key async for one in owners.trash()] == [1]
            assert (await owners.restore(1)).id == 1
            page = await owners.history(1).page(1)
            assert page.has_more
            assert await owners.as_of(page.items[0].versionstamp).filter().allow_scan().exists()
            return [one.actor async for one in owners.history(1)]

    with pytest.raises(InvalidArgumentError, match="horizon"):  # its history keeps versions for 100 seconds only
        asyncio.run(story())


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}


def mutant(function: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    """Register a rule that is taken away."""
    MUTANTS[function.__name__] = function
    return function


@mutant
def a_rewrite_without_its_begin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(versions, "begin_of", lambda _, versionstamp: versionstamp.hex())


@mutant
def equal_documents_end_a_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(versions, "is_same_version", lambda *_: False)


@mutant
def a_time_of_the_record_in_place_of_the_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(versions, "note_of", lambda _: {})


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_taken_away_is_found(name: str, monkeypatch: pytest.MonkeyPatch):
    def story() -> None:
        clock = Clock()
        with Database("memory://", models=[Pet, Owner], clock=clock) as db:
            created = db[Pet].create(id=1).versionstamp
            clock.ms += 1_000
            db[Pet].save(db[Pet].get(1))  # which changes nothing
            clock.ms -= 500
            db[Owner].create(id=1)
            db[Pet].patch(1, sitter=1)
            revisions = list(db[Pet].history(1))
            assert [one.versionstamp for one in revisions][1:] == [created]
            times = [one.at for one in revisions]
            assert None not in times
            assert revisions[0].changes == {"sitter": (None, 1)}

    story()
    MUTANTS[name](monkeypatch)
    with pytest.raises(AssertionError):
        story()
