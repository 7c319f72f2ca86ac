"""Keys and values of a namespace: absent and empty, expiry, comparisons, JSON, limits."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from kvmodels import Limits, open_kv
from kvmodels.api.opening import Opening
from kvmodels.errors import (
    DecodeError,
    InvalidArgumentError,
    InvalidKeyError,
    InvalidValueError,
    KeyTooLargeError,
    ReservedKeyError,
    RetriesExhaustedError,
    ValueTooLargeError,
)
from kvmodels.flows.kv.namespace import ATTEMPTS
from tests.kv.stores import Clock
from tests.namespaces.conftest import namespace


def test_a_value_is_read_back_replaced_and_removed(space):
    assert space.get("a") is None
    space.set("a", {"n": [1, 2.5, b"x"]})
    assert space.get("a") == {"n": [1, 2.5, b"x"]}
    space.set("a", 2)
    assert space.get("a") == 2
    space.delete("a")
    space.delete("a")
    assert space.get("a") is None


@pytest.mark.parametrize("empty", ["", b"", 0, False, [], {}])
def test_M11_an_empty_value_is_not_a_missing_one(space, empty):
    space.set("a", empty)
    assert space.get("a") == empty
    assert space.get("a") is not None
    assert not space.compare_and_set("a", None, "taken"), "the key is there"
    assert space.list_keys() == ["a"]
    assert space.compare_and_delete("a", empty)
    assert space.get("a") is None


def test_M11_none_means_absent_and_cannot_be_stored(space):
    for store in (
        lambda: space.set("a", None),
        lambda: space.set_json("a", None),
        lambda: space.compare_and_set("a", None, None),
        lambda: space.compare_and_set_json("a", None, None),
    ):
        with pytest.raises(InvalidValueError):
            store()
    assert space.list_keys() == []


@pytest.mark.parametrize("lifetime", [0.5, timedelta(milliseconds=500)])
def test_M8_half_a_second_is_half_a_second(stores, space, lifetime):
    space.set("a", 1, expire_in=lifetime)
    space.set_json("b", 1, expire_in=lifetime)
    stores.clock.ms += 499
    assert (space.get("a"), space.get_json("b"), space.list_keys()) == (1, 1, ["a", "b"])
    stores.clock.ms += 1
    assert (space.get("a"), space.get_json("b"), space.list_keys()) == (None, None, [])


def test_an_expired_value_is_absent_for_every_operation(stores, space):
    for key in "abcd":
        space.set(key, key, expire_in=1)
    stores.clock.ms += 1000
    assert space.list_keys() == []
    assert not space.compare_and_set("a", "a", "new")
    assert not space.compare_and_delete("a", "a")
    assert space.compare_and_set("a", None, "new")
    space.set("b", "new")
    stores.clock.ms += 10_000
    assert (space.get("a"), space.get("b")) == ("new", "new"), "overwritten, with no deadline left"


def test_a_comparison_keeps_the_deadline_of_an_expiring_key(stores, space):
    space.set("login", b"nonce", expire_in=10)
    space.set_json("state", 1, expire_in=10)
    stores.clock.ms += 9000
    assert space.compare_and_set("login", b"nonce", b"used")
    assert space.compare_and_set_json("state", 1, 2)
    stores.clock.ms += 999
    assert (space.get("login"), space.get_json("state")) == (b"used", 2)
    stores.clock.ms += 1
    assert (space.get("login"), space.get_json("state")) == (None, None)
    assert space.compare_and_set("login", None, b"new")
    assert space.kv.get(("login",)).expires_at is None, "an absent key has no deadline to keep"


@pytest.mark.parametrize("lifetime", [2, timedelta(seconds=2)])
def test_a_comparison_gives_another_deadline_or_none(stores, space, lifetime):
    for key in ("a", "b", "c"):
        space.set_json(key, 1, expire_in=10)
    now = stores.clock.ms
    assert space.compare_and_set("a", b"1", b"2", expire_in=lifetime)
    assert space.compare_and_set_json("b", 1, 2, expire_in=lifetime)
    assert space.compare_and_set_json("c", 1, 2, expire_in=None)
    assert space.compare_and_set("d", None, 2, expire_in=lifetime)
    deadlines = [space.kv.get((key,)).expires_at for key in "abcd"]
    assert deadlines == [now + 2000, now + 2000, None, now + 2000]
    with pytest.raises(InvalidArgumentError):
        space.compare_and_set("a", b"2", b"3", expire_in=-1)
    assert space.get("a") == b"2"


def test_a_deadline_that_is_written_during_the_comparison_is_the_one_that_is_kept(monkeypatch):
    clock = Clock()
    with open_kv(clock=clock) as kv:
        space, others = kv.namespace("plugin"), kv.namespace("plugin")
        space.set("a", 1, expire_in=10)
        engine = kv._opening.open()

        class Rewriting:
            def __init__(self):
                self.rewritten = False

            def __getattr__(self, name):
                return getattr(engine, name)

            def commit(self, write):
                if not self.rewritten:
                    self.rewritten = True
                    others.set("a", 1, expire_in=20)
                return engine.commit(write)

        rewriting: Any = Rewriting()
        monkeypatch.setattr(space, "_opening", Opening.done(rewriting))
        assert space.compare_and_set("a", 1, 2)
        assert kv.namespace("plugin").kv.get(("a",)).expires_at == clock.ms + 20_000


def test_a_comparison_is_of_encodings_and_none_is_absent(space):
    assert not space.compare_and_set("a", 1, 2)
    assert space.compare_and_set("a", None, 1)
    assert not space.compare_and_set("a", None, 2)
    assert not space.compare_and_set("a", 1.0, 2), "an int and a float are two values"
    assert not space.compare_and_set("a", True, 2)
    assert not space.compare_and_set("a", "1", 2)
    assert space.compare_and_set("a", 1, 2)
    assert not space.compare_and_delete("a", 1)
    assert not space.compare_and_delete("a", None)
    assert space.get("a") == 2
    assert space.compare_and_delete("a", 2)
    assert not space.compare_and_delete("a", 2)
    assert not space.compare_and_delete("a", None)


def test_M9_a_comparison_of_values_does_not_see_what_was_changed_back_but_a_check_does(space):
    space.set("a", 1)
    entry = space.kv.get(("a",))
    space.set("a", 2)
    space.set("a", 1)
    assert not space.kv.atomic().check(entry).set(("a",), 3).commit(), "the versionstamp tells"
    assert space.compare_and_set("a", 1, 3)


def test_M9_no_write_comes_between_the_comparison_and_its_write():
    with open_kv() as kv:
        space = kv.namespace("counters")
        space.set("n", 0)

        def add():
            for _ in range(100):
                while not space.compare_and_set("n", old := space.get("n"), old + 1):
                    pass

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert space.get("n") == 400


def test_M9_a_value_that_is_rewritten_again_and_again_ends_in_a_typed_error(monkeypatch):
    with open_kv() as kv:
        space = kv.namespace("plugin")
        space.set("a", 1)
        engine, commit = kv._opening.open(), kv._opening.open().commit

        class Rewriting:
            def __getattr__(self, name):
                return getattr(engine, name)

            def commit(self, write):
                if write.checks:
                    space_of_others.set("a", 1)
                return commit(write)

        space_of_others = kv.namespace("plugin")
        rewriting: Any = Rewriting()
        monkeypatch.setattr(space, "_opening", Opening.done(rewriting))
        with pytest.raises(RetriesExhaustedError) as caught:
            space.compare_and_set("a", 1, 2)
        assert (caught.value.attempts, caught.value.failed_checks) == (ATTEMPTS, (("a",),))


def test_json_is_stored_as_bytes_that_depend_on_the_value_alone(space):
    space.set_json("a", {"b": 1, "a": [True, None, "ü"]})
    assert space.get("a") == '{"a":[true,null,"ü"],"b":1}'.encode()
    assert space.get_json("a") == {"a": [True, None, "ü"], "b": 1}
    assert space.compare_and_set_json("a", {"a": [True, None, "ü"], "b": 1}, {"n": 1})
    assert not space.compare_and_set_json("a", None, {"n": 2})
    assert not space.compare_and_delete_json("a", {"n": 2})
    assert not space.compare_and_delete_json("a", None)
    assert space.compare_and_delete_json("a", {"n": 1})
    assert space.get_json("a") is None
    assert space.compare_and_set_json("a", None, [1])


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"x", object(), {"a": {(1, 2): 3}}])
def test_what_json_cannot_hold_is_refused(space, value):
    for store in (
        lambda: space.set_json("a", value),
        lambda: space.compare_and_set_json("a", None, value),
        lambda: space.compare_and_set_json("a", value, 1),
        lambda: space.compare_and_delete_json("a", value),
    ):
        with pytest.raises(InvalidValueError):
            store()
    assert space.list_keys() == []


@pytest.mark.parametrize("value", [b"{", "no", 5, {"a": 1}])
def test_reading_json_where_there_is_none_names_the_key(space, value):
    space.set("a", value)
    with pytest.raises(DecodeError) as caught:
        space.get_json("a")
    assert caught.value.key == ("a",)


@pytest.mark.parametrize("key", ["", b"a", 1, None, ("a",), "\ud800"])
def test_what_is_no_key_is_refused(space, key):
    for use in (
        lambda: space.get(key),
        lambda: space.set(key, 1),
        lambda: space.delete(key),
        lambda: space.compare_and_set(key, None, 1),
        lambda: space.compare_and_delete(key, None),
    ):
        with pytest.raises(InvalidKeyError):
            use()


def test_the_name_that_the_library_keeps_for_itself_is_reserved(space):
    with pytest.raises(ReservedKeyError):
        space.set("__kvmodels__", 1)
    with pytest.raises(ReservedKeyError):
        space.kv.set(("__kvmodels__", "x"), 1)
    space.set("__kvmodels__\0", 1)
    assert space.get("__kvmodels__\0") == 1


@pytest.mark.parametrize("name", ["", b"a", 1, None, "\ud800"])
def test_what_is_no_name_is_refused(kv, name):
    with pytest.raises(InvalidArgumentError):
        namespace(kv, name)


def test_limits_are_limits_and_the_error_names_whose(kv):
    with pytest.raises(InvalidArgumentError):
        namespace(kv, "plugin", limits="MATTERMOST")
    space = namespace(kv, "plugin", limits=Limits.MATTERMOST)
    space.set("ü" * 50, 1)
    with pytest.raises(KeyTooLargeError) as caught:
        space.set("ü" * 51, 1)
    assert (caught.value.limit, caught.value.size, caught.value.maximum) == ("max_key_runes", 51, 50)
    assert caught.value.limits == "MATTERMOST"
    space.set("a", b"x" * 4_194_304)
    with pytest.raises(ValueTooLargeError) as too_large:
        space.set("a", b"x" * 4_194_305)
    assert too_large.value.limits == "MATTERMOST"
    assert space.compare_and_set("a", b"x" * 4_194_304, b"y" * 4_194_304)
    inner = space.namespace("inner")
    with pytest.raises(KeyTooLargeError):
        inner.set("x" * 51, 1)


def test_the_smaller_limit_wins(stores):
    kv = stores.open(limits=Limits.DENO)
    space = namespace(kv, "plugin", limits=Limits.MATTERMOST)
    with pytest.raises(ValueTooLargeError) as caught:
        space.set("a", b"x" * 65_537)
    assert (caught.value.maximum, caught.value.limits) == (65_536, "DENO")


def test_a_namespace_says_which_it_is(space):
    assert "('plugin', 'inner')" in repr(space.namespace("inner"))
