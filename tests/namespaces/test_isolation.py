"""No read, list or delete crosses from one namespace into another, whatever names and keys are."""

from __future__ import annotations

import random
import time
from collections import defaultdict

import pytest

from kvmodels import Database, KvModel, PrimaryKey, open_kv
from kvmodels.errors import ReservedKeyError
from tests.namespaces.conftest import namespace

ALPHABET = ["\0", "\0\0", "/", ":", ".", "\\", "%", "\x01", "\x02", "\x7f", "ÿ", "\U0010ffff", "a", "b", "ab"]
ALPHABET += ["__kvmodels__", "ns", " ", "\n"]


def text(draw):
    """Texts that are prefixes of each other, with whatever might be taken for a separator."""
    while (word := "".join(draw.choices(ALPHABET, k=draw.choice([1, 1, 2, 2, 3, 5])))) == "__kvmodels__":
        pass
    return word


def of_path(kv, path):
    space = kv.namespace(path[0])
    for name in path[1:]:
        space = space.namespace(name)
    return space


def fuzz(kv, count, seed):
    """Write at random, with a dict for each namespace, and compare all of them."""
    print(f"seed {seed}")
    draw = random.Random(seed)
    names = [text(draw) for _ in range(12)]
    paths = list({tuple(draw.choices(names, k=draw.choice([1, 1, 2, 3]))) for _ in range(40)})
    expected: dict = defaultdict(dict)
    outside = {(name,): f"outside {name}" for name in names}
    for key, value in outside.items():
        kv.set(key, value)
    for number in range(count):
        path, key = draw.choice(paths), text(draw)
        space = of_path(kv, path)
        match draw.randrange(20):
            case 0:
                space.delete(key)
                expected[path].pop((key,), None)
            case 1:
                parts = (key, text(draw))
                space.kv.set(parts, number)
                expected[path][parts] = number
            case 2:
                assert space.compare_and_set(key, expected[path].get((key,)), number)
                expected[path][key,] = number
            case 3 if draw.random() < 0.1:
                assert space.delete_all() == len(expected.pop(path, {}))
            case _:
                space.set(key, number)
                expected[path][key,] = number
        assert space.get(key) == expected[path].get((key,))
        if number % (count // 10 + 1) == 0:
            compare(kv, paths, expected, draw)
    compare(kv, paths, expected, draw)
    for path in paths:
        of_path(kv, path).delete_all()
        expected.pop(path, None)
        compare(kv, draw.sample(paths, 5), expected, draw)
    assert {entry.key: entry.value for entry in kv.list(())} == outside


def compare(kv, paths, expected, draw):
    for path in paths:
        space, content = of_path(kv, path), expected.get(path, {})
        texts = sorted((key[0] for key in content if len(key) == 1), key=str.encode)
        assert space.list_keys(0, 10**6) == texts, path
        prefix = text(draw)
        matching = [key for key in texts if key.startswith(prefix)]
        assert space.list_keys(0, 10**6, prefix) == matching
        assert space.list_keys(1, 3, prefix) == matching[3:6]
        seen = {e.key: e.value for e in space.kv.list(()) if e.key[0] != "__kvmodels__"}
        assert seen == content, path


@pytest.mark.parametrize("url", ["memory://", "sqlite://:memory:"])
def test_random_names_and_keys_never_meet(url):
    with open_kv(url) as kv:
        fuzz(kv, 1500, seed=6)


@pytest.mark.soak
@pytest.mark.parametrize("url", ["memory://", "sqlite://:memory:"])
def test_a_hundred_thousand_random_names_and_keys_never_meet(url):
    with open_kv(url) as kv:
        fuzz(kv, 100_000, seed=time.time_ns())


def test_names_that_are_prefixes_or_paths_of_each_other_are_apart(kv):
    names = ["a", "a\0", "a\0b", "a/b", "ab", "b", "ns", "a\0\x02b"]
    spaces = {name: namespace(kv, name) for name in names}
    for name, space in spaces.items():
        space.set("key", name)
    assert {name: space.get("key") for name, space in spaces.items()} == {name: name for name in names}
    assert spaces["a"].delete_all() == 1
    assert [name for name, space in spaces.items() if space.get("key") is None] == ["a"]


def test_an_inner_namespace_is_no_key_of_the_outer_one(kv):
    outer = namespace(kv, "a")
    inner = outer.namespace("b")
    outer.set("b", "key")
    outer.kv.set(("b", "c"), "key of two parts")
    inner.set("c", "inner")
    namespace(kv, "b").set("c", "another")
    assert (outer.get("b"), inner.get("c"), outer.kv.get(("b", "c")).value) == ("key", "inner", "key of two parts")
    assert (outer.list_keys(), inner.list_keys()) == (["b"], ["c"])
    assert outer.delete_all() == 2
    assert (inner.get("c"), namespace(kv, "b").get("c")) == ("inner", "another")
    assert inner.delete_all() == 1
    assert kv.get(("__kvmodels__", "ns", "b", "c")).value == "another", "where the table of the layout says"


def test_the_key_value_api_of_a_namespace_sees_nothing_else(kv):
    space = namespace(kv, "plugin")
    kv.set(("a",), "outside")
    namespace(kv, "plugin2").set("a", "another")
    assert space.kv.get(("a",)).value is None
    assert space.kv.atomic().check(("a",), None).set(("a",), 1).sum(("n",), 5).commit()
    assert space.get("a") == 1
    assert [entry.key for entry in space.kv.list(())] == [("a",), ("n",)]
    assert [entry.key for entry in space.kv.list((), reverse=True)] == [("n",), ("a",)]
    assert space.kv.count(()) == 2
    assert space.kv.get_many([("a",), ("b",)])[1].key == ("b",)
    page = space.kv.list((), limit=1)
    assert [entry.key for entry in page] == [("a",)]
    assert [entry.key for entry in space.kv.list((), cursor=page.cursor)] == [("n",)]
    failed = space.kv.atomic().check(("a",), None).commit()
    assert failed.failed_checks == (("a",),)
    space.kv.delete(("a",))
    assert kv.get(("a",)).value == "outside"


def test_queue_and_watch_of_a_namespace_are_its_own():
    handled: list = []
    with open_kv() as kv:
        space, other = kv.namespace("plugin"), kv.namespace("other")
        space.kv.enqueue("mine", keys_if_undelivered=[("failed",)], backoff_schedule=())
        other.kv.enqueue("not mine")
        kv.enqueue("not mine")
        watch = space.kv.watch([("failed",)], timeout=60)
        assert next(watch)[0].value is None

        def fail(message):
            handled.append(message)
            raise ValueError("always")

        with space.kv.listen(fail):
            assert next(watch)[0] == space.kv.get(("failed",))
        assert handled == ["mine"]
        assert space.get("failed") == "mine"
        assert (kv.count(("__kvmodels__", "queue")), space.kv.count(("__kvmodels__", "queue"))) == (1, 0)


def test_a_namespace_named_like_a_collection_touches_no_record():
    class Account(KvModel, collection="accounts"):
        id: PrimaryKey[int]

    with Database("memory://", models=[Account]) as db:
        db[Account].create(id=1)
        space = db.kv.namespace("accounts")
        space.set("accounts", 1)
        space.kv.set(("accounts", 1), "free here")
        assert db[Account].get(1).id == 1
        assert space.delete_all() == 2
        assert db[Account].get(1).id == 1
        with pytest.raises(ReservedKeyError):
            db.kv.set(("accounts", 1), "not here")
