"""Defects that were reproduced in kvdex (K), pentagon (P) and kv-toolbox (T), as regressions that must not happen here.

Those of the key-value API are in ``tests/kv`` and ``tests/contract`` (K9, K11, K25, P5, T1), those of queries in
``tests/query`` (K12 to K14, P3, P6, P9).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from itertools import permutations
from typing import Annotated

import pytest
from pydantic import AfterValidator, BeforeValidator

from kvmodels import (
    AlreadyExistsError,
    AsyncDatabase,
    Database,
    DoesNotExist,
    Indexed,
    KvModel,
    Limits,
    NonIdempotentValidatorError,
    PrimaryKey,
    StaleObjectError,
    UniqueViolationError,
    ValueTooLargeError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.retry_policy import RetryPolicy
from tests.query.engines import WatchedEngine
from tests.regressions.counting_process import __file__ as COUNTING_PROCESS
from tests.regressions.counting_process import increment
from tests.regressions.stores import at_once, entries, exact, opened
from tests.source_tree import REPOSITORY
from tests.zoo import Account

# --- kvdex ------------------------------------------------------------------------------------------------------------


def test_K1_twenty_increments_are_twenty(accounts):
    accounts.create(id=1)
    outcomes = at_once(*(partial(accounts.mutate, 1, increment) for _ in range(20)))
    assert sorted(account.n for account in outcomes) == list(range(1, 21)), "each saw another count"
    assert accounts.get(1).n == 20


async def test_K1_twenty_increments_of_one_event_loop_are_twenty(engine, tmp_path):
    url = "memory://" if engine == "memory" else str(tmp_path / "async.db")
    async with AsyncDatabase(url, models=[Account]) as db:
        await db[Account].create(id=1)
        await asyncio.gather(*(db[Account].mutate(1, increment) for _ in range(20)))
        assert (await db[Account].get(1)).n == 20
        assert (await db.check()).findings == ()


def test_K1_twenty_increments_of_four_processes_are_twenty(tmp_path):
    with opened("sqlite", tmp_path, Account) as db:
        db[Account].create(id=1)
        command = [sys.executable, COUNTING_PROCESS, str(tmp_path / "regressions.db"), "5"]
        children = [subprocess.Popen(command, cwd=REPOSITORY, env={"PYTHONPATH": str(REPOSITORY)}) for _ in range(4)]
        assert [child.wait(timeout=60) for child in children] == [0] * 4
        assert db[Account].get(1).n == 20
        exact(db, Account)


def test_K2_concurrent_changes_of_an_indexed_field_leave_one_entry(db, accounts):
    accounts.create(id=1, color="red")
    colors = ["green", "blue", "black", "white"]
    at_once(*(partial(accounts.patch, 1, color=color) for color in colors))
    assert entries(db, "color") == [(accounts.get(1).color, 1)]
    assert [accounts.filter(color=color).count() for color in ("red", *colors)].count(1) == 1


def test_K3_concurrent_renames_leave_one_unique_entry_and_block_nothing(db, accounts):
    accounts.create(id=1, email="a")
    at_once(partial(accounts.patch, 1, email="b"), partial(accounts.patch, 1, email="c"))
    kept = accounts.get(1).email
    assert entries(db, "email") == [(kept,)]
    for number, email in enumerate({"a", "b", "c"} - {kept}):
        accounts.create(id=10 + number, email=email)


@pytest.mark.parametrize("again", range(5))
def test_K4_an_update_that_races_a_removal_resurrects_nothing(db, accounts, again):
    accounts.create(id=1, email="a", color="red")
    updated, removed = at_once(partial(accounts.patch, 1, email="b", color="blue"), partial(accounts.remove, 1))
    assert removed is True
    assert isinstance(updated, Account | DoesNotExist)
    assert accounts.get_or_none(1) is None
    assert entries(db, "email") == entries(db, "color") == []


def test_K4_a_removal_beside_changes_of_its_entries_leaves_none_behind(db, accounts):
    accounts.create(id=1, email="a")
    at_once(*(partial(accounts.patch, 1, email=f"e{number}") for number in range(6)), partial(accounts.remove, 1))
    assert accounts.get_or_none(1) is None
    assert entries(db, "email") == entries(db, "color") == []


def test_K5_removing_a_record_never_frees_a_value_that_has_passed_to_another(db, accounts):
    old = accounts.create(id=1, email="a")
    accounts.patch(1, email="b")
    accounts.create(id=2, email="a")
    with pytest.raises(StaleObjectError):
        accounts.remove(old)  # it still believes to hold "a"
    assert accounts.remove(1)
    assert entries(db, "email") == [("a",)]
    assert accounts.get(email="a").id == 2
    with pytest.raises(UniqueViolationError):
        accounts.create(id=3, email="a")


def test_K6_overwriting_removes_the_old_entries_and_may_keep_a_unique_value(db, accounts):
    accounts.create(id=1, email="a", color="red")
    accounts.save(Account(id=1, email="a", color="blue"), force=True)
    assert (entries(db, "email"), entries(db, "color")) == ([("a",)], [("blue", 1)])
    accounts.save(Account(id=1, email="b", color="blue"), force=True)
    assert (entries(db, "email"), entries(db, "color")) == ([("b",)], [("blue", 1)])


def test_K7_a_retried_update_is_computed_anew():
    store = MemoryEngine()
    core = partial(DatabaseCore, [Account], retry=RetryPolicy(), readonly=False, must_be_current=False)
    others, watched = Database.from_engine(store, core()), WatchedEngine(store)
    mine = Database.from_engine(watched, core())
    mine[Account].create(id=1, email="a", color="red")
    attempts = []

    def rename(account: Account) -> None:
        attempts.append(account.email)
        if len(attempts) == 1:  # what was just read is overtaken before it can be written
            others[Account].patch(1, email="other", color="blue")
        account.email = "mine"

    assert mine[Account].mutate(1, rename).color == "blue"
    assert attempts == ["a", "other"]
    assert (entries(mine, "email"), entries(mine, "color")) == ([("mine",)], [("blue", 1)])
    exact(mine, Account)


def test_K7_a_retried_update_keeps_its_unchanged_unique_value():
    with Database("memory://", models=[Account]) as db:
        db[Account].create(id=1, email="a")
        attempts = []

        def change(account: Account) -> None:
            attempts.append(account.n)
            if len(attempts) == 1:
                db[Account].patch(1, n=7)
            account.color = "blue"

        assert db[Account].mutate(1, change).n == 7
        assert attempts == [0, 7]
        assert entries(db, "email") == [("a",)]
        exact(db, Account)


@pytest.mark.parametrize("verb", ["create", "patch", "bulk_create"])
def test_K9_K11_a_record_over_the_limit_is_refused_whole(engine, tmp_path, verb):
    with opened(engine, tmp_path, Account, limits=Limits.DENO) as db:
        db[Account].create(id=1, email="a")
        before = list(db.kv.list(prefix=()))
        large = "x" * 70_000
        with pytest.raises(ValueTooLargeError) as caught:
            {
                "create": lambda: db[Account].create(id=2, email=None, color="c" * 1000, note=large),
                "patch": lambda: db[Account].patch(1, note=large),
                "bulk_create": lambda: db[Account].bulk_create([Account(id=3), Account(id=4, note=large)]),
            }[verb]()
        assert (caught.value.maximum, caught.value.size > 70_000) == (65_536, True)
        assert list(db.kv.list(prefix=())) == before


def test_K15_a_model_whose_validators_transform_is_read_as_it_was_written(engine, tmp_path):
    class Reading(KvModel, collection="readings"):
        id: PrimaryKey[int]
        amount: Annotated[int, BeforeValidator(lambda value: int(value))]
        unit: Annotated[str, AfterValidator(lambda value: value.strip().lower()), Indexed()]

    with opened(engine, tmp_path, Reading) as db:
        created = db[Reading].create(id=1, amount="17", unit=" KG ")
        assert (created.amount, created.unit) == (17, "kg")
        assert db[Reading].get(1) == created == db[Reading].filter(unit="kg").first()
        assert db[Reading].patch(1, amount=18).amount == 18
        exact(db, Reading)


def test_K22_a_bulk_insert_is_all_or_nothing_and_says_which_object_is_in_the_way(db, accounts):
    accounts.create(id=9, email="taken")
    objects = [Account(id=1, email="a"), Account(id=2, email="taken"), Account(id=3, email="c")]
    with pytest.raises(UniqueViolationError) as caught:
        accounts.bulk_create(objects)
    assert (caught.value.position, caught.value.committed, caught.value.existing_key) == (1, 0, 9)
    assert [account.id for account in accounts.all()] == [9]
    assert [made.is_persisted for made in objects] == [False] * 3
    items = accounts.bulk_create(objects, on_conflict="ignore")
    assert [(item.obj.id, item.created) for item in items] == [(1, True), (2, False), (3, True)]


def test_K23_results_come_in_the_order_that_was_asked_for(accounts):
    items = accounts.bulk_create([Account(id=number) for number in (5, 3, 9, 1)])
    assert [item.obj.id for item in items] == [5, 3, 9, 1]
    assert list(accounts.in_bulk([9, 1, 7, 5])) == [9, 1, 5]
    assert [account.id for account in accounts.order_by("-id")] == [9, 5, 3, 1]


def test_K23_a_long_answer_is_streamed_and_not_held():
    watched = WatchedEngine()
    core = DatabaseCore([Account], retry=RetryPolicy(), readonly=False, must_be_current=False)
    db = Database.from_engine(watched, core)
    db[Account].bulk_create([Account(id=number) for number in range(3000)])
    watched.meter.reset()
    assert next(iter(db[Account].all())).id == 0
    assert watched.meter.rows < 1500, "the first object must not cost the whole answer"


# --- pentagon ---------------------------------------------------------------------------------------------------------


def test_P1_an_update_is_seen_through_every_index(accounts):
    accounts.create(id=1, email="old", color="red")
    accounts.patch(1, email="new", color="blue")
    assert accounts.get_or_none(email="old") is None
    assert accounts.get(email="new") == accounts.get(1) == accounts.filter(color="blue").first()
    found = accounts.get(email="new")
    found.n = 5
    accounts.save(found)
    assert accounts.get(1).n == 5 == accounts.get(email="new").n


def test_P2_a_removed_record_leaves_no_entry_and_its_email_can_be_used_again(db, accounts):
    accounts.create(id=1, email="a")
    assert accounts.remove(accounts.get(email="a"))
    assert [entry.key for entry in db.kv.list(prefix=()) if entry.key[0] != "__kvmodels__"] == []
    assert accounts.create(id=2, email="a").email == "a"


def test_P4_a_failing_batch_says_what_is_stored_already_and_stores_nothing_of_itself(accounts):
    objects = [Account(id=number, email=f"e{number}") for number in range(30)]
    objects[21].email = "e3"
    with pytest.raises(UniqueViolationError) as caught:
        accounts.bulk_create(objects, batch_size=10)
    assert (caught.value.position, caught.value.committed, caught.value.index) == (21, 20, "email")
    assert accounts.count() == 20
    objects[21].email = "e21"
    with pytest.raises(AlreadyExistsError) as again:
        accounts.bulk_create(objects)
    assert (again.value.position, again.value.committed) == (0, 0)
    assert accounts.count() == 20


def test_P5_records_of_one_commit_are_all_found_by_their_keys(accounts):
    accounts.bulk_create([Account(id=number) for number in range(5)])
    assert list(accounts.in_bulk([0, 3])) == [0, 3]
    assert [account.id for account in accounts.filter(id__in=[0, 3])] == [0, 3]


def test_every_order_of_claims_and_releases_of_one_value_is_exact(db, accounts):
    for order in permutations(["create", "rename", "remove"]):
        accounts.create(id=1, email="a")
        calls = {
            "create": partial(accounts.create, id=2, email="a"),
            "rename": partial(accounts.patch, 1, email="b"),
            "remove": partial(accounts.remove, 1),
        }
        at_once(*(calls[name] for name in order))
        exact(db, Account)
        for account in accounts.all().to_list():
            accounts.remove(account)


def test_a_validator_that_changes_its_own_output_is_refused_before_anything_is_written(engine, tmp_path):
    class Hashed(KvModel, collection="hashed"):
        id: PrimaryKey[int]
        secret: Annotated[str, AfterValidator(lambda value: f"h({value})")]

    with opened(engine, tmp_path, Hashed) as db:
        with pytest.raises(NonIdempotentValidatorError):
            db[Hashed].create(id=1, secret="s")
        assert db[Hashed].count() == 0
