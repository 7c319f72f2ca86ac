"""Every verb on a database that is closed, not open yet, or inherited by a forked child: ClosedError, nothing else."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import AsyncDatabase, ClosedError, Database, KvModelsError, open_async_kv, open_kv
from tests.robustness.models import MODELS, Member, ada, refused, require_readable

BOB: dict[str, Any] = {"id": 2, "email": "bob@x.org", "color": "blue"}

READS: dict[str, Callable[[Any], Any]] = {
    "get": lambda db: db[Member].get(1),
    "get by a unique value": lambda db: db[Member].get(email="ada@x.org"),
    "get_or_none": lambda db: db[Member].get_or_none(1),
    "in_bulk": lambda db: db[Member].in_bulk([1]),
    "refresh": lambda db: db[Member].refresh(ada()),
    "to_list": lambda db: db[Member].filter(color="red").to_list(),
    "first": lambda db: db[Member].order_by("-score").first(),
    "last": lambda db: db[Member].all().last(),
    "count": lambda db: db[Member].count(),
    "exists": lambda db: db[Member].filter(color="red").exists(),
    "page": lambda db: db[Member].page(size=1),
    "check": lambda db: db.check(),
    "kv.get": lambda db: db.kv.get(("members", 1)),
}

WRITES: dict[str, Callable[[Any], Any]] = {
    "create": lambda db: db[Member].create(**BOB),
    "insert": lambda db: db[Member].insert(Member(**BOB)),
    "save": lambda db: db[Member].save(Member(**BOB)),
    "save by force": lambda db: db[Member].save(ada(), force=True),
    "patch": lambda db: db[Member].patch(1, note="x"),
    "mutate": lambda db: db[Member].mutate(1, lambda found: None),
    "remove": lambda db: db[Member].remove(1),
    "remove an object": lambda db: db[Member].remove(ada()),
    "get_or_create": lambda db: db[Member].get_or_create(email="bob@x.org", defaults=BOB),
    "bulk_create": lambda db: db[Member].bulk_create([Member(**BOB)]),
    "build_indexes": lambda db: db.build_indexes(),
    "drop_index": lambda db: db.drop_index(Member, "color"),
    "outcome": lambda db: db.outcome("token"),
    "kv.set": lambda db: db.kv.set(("raw",), 1),
}

VERBS = {**READS, **WRITES}


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def url(request, url_of):
    return url_of(request.param)


async def answer_of(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


@pytest.mark.parametrize("verb", VERBS)
def test_a_closed_database_refuses_every_verb_and_another_handle_goes_on(url, verb):
    with Database(url, models=MODELS) as other:
        other[Member].insert(ada())
        db = Database(url, models=MODELS)
        users = db[Member]
        assert users.get(1).color == "red"
        db.close()
        db.close()
        refused(lambda: VERBS[verb](db), ClosedError)
        assert other[Member].count() == 1
        assert other.check().ok


def test_a_closed_store_is_not_entered_again_as_a_file_is_not(url):
    with Database(url, models=MODELS) as db:
        pass
    refused(db.__enter__, ClosedError)
    with open_kv(url) as kv:
        pass
    refused(kv.__enter__, ClosedError)


async def test_a_closed_asynchronous_store_is_not_entered_again(url):
    async with AsyncDatabase(url, models=MODELS) as db:
        pass
    with pytest.raises(ClosedError):
        await db.__aenter__()
    async with open_async_kv(url) as kv:
        pass
    with pytest.raises(ClosedError):
        await kv.__aenter__()


def test_an_iteration_that_was_begun_ends_with_a_closed_error_when_the_store_is_closed():
    db = Database("memory://", models=MODELS)
    db[Member].bulk_create([Member(id=i, email=f"{i}@x.org", color="red") for i in range(1_000)])
    rows = iter(db[Member].all())
    assert next(rows).id == 0
    db.close()
    refused(lambda: list(rows), ClosedError)


@pytest.mark.servers
@pytest.mark.parametrize("verb", VERBS)
async def test_a_closed_asynchronous_database_refuses_every_verb(url, verb):
    async with AsyncDatabase(url, models=MODELS) as db:
        await db[Member].insert(ada())
    await db.close()
    with pytest.raises(ClosedError) as caught:
        await answer_of(VERBS[verb](db))
    require_readable(caught.value)


@pytest.mark.parametrize("verb", VERBS)
async def test_an_asynchronous_database_that_is_not_open_yet_refuses_every_verb(url, verb):
    db = AsyncDatabase(url, models=MODELS)
    with pytest.raises(ClosedError) as caught:
        await answer_of(VERBS[verb](db))
    require_readable(caught.value)
    assert "open" in str(caught.value.hint)


async def test_a_database_that_was_closed_is_not_opened_again(url):
    db = AsyncDatabase(url, models=MODELS)
    await db.open()
    await db.open()
    await db.close()
    with pytest.raises(ClosedError):
        await db.open()


def in_a_forked_child(work: Callable[[], Any]) -> Any:
    """Return the answer of a function in a child of this process, as JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writing, json.dumps(work()).encode())
            status = 0
        finally:
            # Not sys.exit: the child must not run the rest of the test session.
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as answers:
        text = answers.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(text)


def test_a_forked_child_gets_a_closed_error_from_every_verb_and_the_parent_goes_on(url):
    with Database(url, models=MODELS) as db:
        db[Member].insert(ada())

        def every_verb() -> dict[str, str]:
            answers = {}
            for name, call in VERBS.items():
                try:
                    call(db)
                    answers[name] = "no error"
                except KvModelsError as error:
                    answers[name] = f"{type(error).__name__}: {error.hint}"
            return answers

        answers = in_a_forked_child(every_verb)
        assert answers.keys() == VERBS.keys()
        for name, answer in answers.items():
            assert answer.startswith("ClosedError: "), name
            assert "fork" in answer, name
        assert db[Member].patch(1, note="still here").note == "still here"
        assert db[Member].count() == 1
        assert db.check().ok


def test_a_forked_child_that_opens_the_file_itself_writes_beside_its_parent(tmp_path):
    path = tmp_path / "app.db"
    with Database(path, models=MODELS) as db:
        db[Member].insert(ada())

        def own_database() -> int:
            with Database(path, models=MODELS) as own:
                own[Member].create(**BOB)
                return own[Member].count()

        assert in_a_forked_child(own_database) == 2
        assert db[Member].count() == 2
        db[Member].create(id=3, email="eve@x.org", color="red")
        assert db.check().ok
