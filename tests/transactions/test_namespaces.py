"""``tx.kv.namespace``: the keys of a namespace are read and written in the one commit, and nothing leads out of it."""

from __future__ import annotations

import asyncio

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    InvalidArgumentError,
    KeyTooLargeError,
    KvModel,
    KvU64,
    Limits,
    PrimaryKey,
    ReservedKeyError,
    TransactionConflictError,
    ValueTooLargeError,
)


class Plugin(KvModel, collection="plugins"):
    name: PrimaryKey[str]
    runs: int = 0


@pytest.fixture
def db() -> Database:
    made = Database("memory://", models=[Plugin])
    made[Plugin].create(name="github")
    return made


def test_keys_of_a_namespace_go_into_the_commit_of_a_record(db: Database):
    github = db.kv.namespace("github")
    with db.transaction() as tx:
        inside = tx.kv.namespace("github")
        inside.set(("token",), b"secret")
        inside.sum(("calls",), 2)
        inside.namespace("cache").set(("page",), "x", expire_in=60)
        tx[Plugin].patch("github", runs=1)
        assert inside.get(("token",)).value == b"secret"
        assert [entry.key for entry in inside.list(("calls",))] == []
        assert [entry.value for entry in inside.get_many([("calls",), ("none",)])] == [KvU64(2), None]
        assert tx.kv.get(("token",)).value is None
        assert github.get("token") is None
    assert (github.get("token"), github.kv.get(("calls",)).value) == (b"secret", KvU64(2))
    assert github.namespace("cache").get("page") == "x"
    assert (db[Plugin].get("github").runs, db.kv.namespace("jira").list_keys()) == (1, [])


def test_a_key_of_a_namespace_that_was_read_is_checked(db: Database):
    github = db.kv.namespace("github")
    github.set("token", 1)
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        inside = tx.kv.namespace("github")
        assert inside.get(("token",)).value == 1
        github.set("token", 2)
        inside.set(("token",), 3)
    assert github.get("token") == 2


def test_nothing_is_written_when_the_block_fails(db: Database):
    with pytest.raises(KeyError), db.transaction() as tx:
        tx.kv.namespace("github").set(("token",), 1)
        raise KeyError
    assert db.kv.namespace("github").get("token") is None


def test_a_message_goes_into_the_queue_of_the_namespace(db: Database):
    with db.transaction() as tx:
        tx.kv.namespace("github").enqueue("inner")
        tx.kv.enqueue("outer")
    rows = [entry.key for entry in db.kv.unsafe().list(prefix=("__kvmodels__",)) if "queue" in entry.key]
    assert sorted(key[: key.index("queue")] for key in rows) == [
        ("__kvmodels__",),
        ("__kvmodels__", "ns", "github", "__kvmodels__"),
    ]


def test_the_limits_of_a_namespace_hold_in_a_transaction(db: Database):
    with db.transaction() as tx:
        inside = tx.kv.namespace("github", limits=Limits.MATTERMOST)
        with pytest.raises(KeyTooLargeError) as caught:
            inside.set(("k" * 51,), 1)
        assert caught.value.limits == "MATTERMOST"
        with pytest.raises(ValueTooLargeError):
            inside.set(("k",), b"x" * 4_194_305)
        with pytest.raises(KeyTooLargeError):
            inside.enqueue(1, keys_if_undelivered=[("k" * 51,)])
        inside.set(("k" * 50,), 1)
        tx.kv.set(("k" * 51,), 1)
    assert db.kv.namespace("github").list_keys() == ["k" * 50]


def test_a_namespace_has_a_name_and_keeps_its_own_reservations(db: Database):
    with db.transaction() as tx:
        for name in ("", 5):
            with pytest.raises(InvalidArgumentError):
                tx.kv.namespace(name)  # type: ignore[arg-type]
        with pytest.raises(ReservedKeyError):
            tx.kv.namespace("github").set(("__kvmodels__", "ns", "x"), 1)
        tx.kv.namespace("github").set(("plugins", "github"), 1)  # no collection is in there


def test_a_namespace_is_written_in_an_asynchronous_transaction():
    async def tried() -> tuple[object, object]:
        async with AsyncDatabase("memory://") as db:
            async with db.transaction() as tx:
                inside = tx.kv.namespace("github")
                await inside.set(("token",), 1)
                await inside.namespace("cache").set(("page",), 2)
                assert (await inside.get(("token",))).value == 1
            github = db.kv.namespace("github")
            return await github.get("token"), await github.namespace("cache").get("page")

    assert asyncio.run(tried()) == (1, 2)
