"""The whole core API against a plain dict, on both engines, in both worlds, with a clock that the test moves."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvmodels import COMMIT_VERSIONSTAMP
from kvmodels.core.keys import encode_key, key_range
from kvmodels.core.values import KvU64
from kvmodels.errors import InvalidArgumentError, InvalidValueError, UnsupportedError
from tests.kv.dict_model import Change, DictModel, Refused, same
from tests.kv.stores import Stores

KEYS = st.sampled_from(
    [
        ("a",),
        ("a", 1),
        ("a", 1.0),
        ("a", True),
        ("a", "b"),
        ("a", "b", b""),
        ("a\0",),
        ("b",),
        (b"\xff",),
        (0.0,),
        (-0.0,),
        (math.nan,),
        (-(2**70), "z"),
    ]
)
NUMBERS = st.sampled_from([0, 1, -7, 2**64, 2**70, 0.5, -0.0, -1e308, math.inf, -math.inf, KvU64(1), KvU64(2**64 - 1)])
VALUES = NUMBERS | st.sampled_from([None, True, "text", b"", b"12345678", [1, [2.0]], {"a": {1}}])
LIFETIMES = st.sampled_from([None, None, None, 0, 1, 500, 2_000])
BOUNDS = st.sampled_from(
    [
        {},
        {},
        {"minimum": 0},
        {"maximum": 5, "clamp": True},
        {"minimum": -1.0, "maximum": 1.0, "clamp": True},
        {"maximum": 0.0},
    ]
)


def fitting(operand, bounds):
    """Bounds of the type of the operand; others are refused when the operation is built, see test_mutate.py."""
    numbers = [bound for name, bound in bounds.items() if name != "clamp"]
    return bounds if all(type(bound) is type(operand) for bound in numbers) else {}


@st.composite
def changes(draw):
    """One mutation."""
    kind = draw(st.sampled_from(["set", "set", "delete", "stamped", "sum", "sum", "sum", "min", "max"]))
    key = draw(KEYS)
    if kind in {"set", "stamped"}:
        return Change(kind, key, draw(VALUES), draw(LIFETIMES))
    if kind == "delete":
        return Change(kind, key)
    operand = draw(NUMBERS.filter(lambda number: kind == "sum" or isinstance(number, KvU64)))
    bounds = fitting(operand, draw(BOUNDS))
    return Change(kind, key, operand, draw(LIFETIMES), bounds, keep_deadline=draw(st.booleans()))


@st.composite
def selectors(draw):
    """A selector that makes sense."""
    if draw(st.booleans()):
        low, high = sorted((draw(KEYS), draw(KEYS)), key=encode_key)
        return {"start": low, "end": high}
    prefix = draw(st.sampled_from([(), ("a",), ("a", "b"), ("b",)]))
    bound = draw(st.sampled_from([None, "start", "end"]))
    inside = draw(KEYS)
    if bound is None or len(inside) <= len(prefix) or inside[: len(prefix)] != prefix:
        return {"prefix": prefix}
    return {"prefix": prefix, bound: inside}


class Shared:
    """The store of all runs of one test, because opening a file takes longer than a run; it is emptied in between."""

    def __init__(self, stores):
        self.stores = stores
        self.runs = 0
        self.url = stores.url()
        self.kv = self.open()
        self.stamps_keys = self._stamps_keys()

    def _stamps_keys(self):
        """Whether keys may end with the versionstamp of their commit, which etcd does not have."""
        never = self.kv.atomic().check(("absent",), "f" * 20).set(("k", COMMIT_VERSIONSTAMP), 1)
        try:
            return not never.commit().ok
        except UnsupportedError:
            return False

    def open(self):
        kv = self.stores.open(self.url, snapshot_max_age=1_000_000.0)
        kv.get(())  # an asynchronous store is opened by its first call
        return kv

    def reopen(self):
        old = self.kv
        if self.stores.engine != "memory":
            old.close()
        self.kv = self.open()
        old.close()  # a store in memory lives as long as a handle of its name
        return self.kv


class CoreApi(RuleBasedStateMachine):
    """One store and one dict, which every verb must leave equal."""

    shared: Shared
    verbs: Counter[str] = Counter()

    def __init__(self):
        super().__init__()
        self.stores = self.shared.stores
        self.kv = self.shared.kv
        self.model = DictModel(self.stores.clock.ms)
        self.known = [(("a",), None)]
        self.snapshots = []
        self.reopens = False
        self.last = ""
        self.shared.runs += 1
        for entry in self.kv.list((), keys_only=True):
            self.kv.delete(entry.key)

    def teardown(self):
        self.close_snapshots()

    def close_snapshots(self):
        for snapshot, _ in self.snapshots:
            snapshot.close()
        self.snapshots.clear()

    # --- reads

    def compare(self, entry, key, row, *, value=True):
        assert encode_key(entry.key) == encode_key(key)
        if row is None:
            assert entry[1:] == (None, None, None)
            return
        assert (entry.versionstamp, entry.expires_at) == (row.versionstamp, row.deadline)
        assert same(entry.value, row.value if value else None), (entry, row)

    @rule(key=KEYS)
    def get(self, key):
        self.verbs["get"] += 1
        entry = self.kv.get(key)
        self.compare(entry, key, self.model.get(key))
        self.known.append((key, entry.versionstamp))

    @rule(keys=st.lists(KEYS, max_size=4))
    def get_many(self, keys):
        self.verbs["get_many"] += 1
        for key, entry in zip(keys, self.kv.get_many(keys), strict=True):
            self.compare(entry, key, self.model.get(key))

    @rule(
        selector=selectors(),
        limit=st.none() | st.integers(1, 4),
        reverse=st.booleans(),
        batch_size=st.none() | st.integers(1, 3),
        keys_only=st.booleans(),
    )
    def list(self, selector, limit, reverse, batch_size, keys_only):
        self.verbs["list keys_only" if keys_only else "list"] += 1
        options = {"limit": limit, "reverse": reverse, "batch_size": batch_size, "keys_only": keys_only}
        self.compare_listing(self.kv, self.model, selector, options)

    def compare_listing(self, source, model, selector, options):
        expected = model.listed(*key_range(**selector))[:: -1 if options.get("reverse") else 1]
        listing = source.list(**selector, **options)
        entries = [*listing]
        wanted = expected[: options.get("limit")]
        assert len(entries) == len(wanted)
        for entry, row in zip(entries, wanted, strict=True):
            self.compare(entry, row.key, row, value=not options.get("keys_only"))
        if options.get("limit") is None or len(wanted) < options["limit"]:
            assert listing.cursor == ""

    @rule(selector=selectors(), limit=st.integers(1, 3), reverse=st.booleans(), change=changes() | st.none())
    def page(self, selector, limit, reverse, change):
        """Pages by cursor, with a write after the first: they are the keys before the cursor and those behind it."""
        self.verbs["page by cursor"] += 1
        first = self.kv.list(**selector, limit=limit, reverse=reverse)
        seen = [encode_key(entry.key) for entry in first]
        if change is not None:
            self.commit([], [change])
        if not first.cursor:
            return
        rest = [encode_key(entry.key) for entry in self.kv.list(**selector, reverse=reverse, cursor=first.cursor)]
        everything = [encode_key(row.key) for row in self.model.listed(*key_range(**selector))]
        edge = seen[-1]
        assert rest == (
            [key for key in reversed(everything) if key < edge] if reverse else [k for k in everything if k > edge]
        )

    @rule(selector=selectors())
    def count(self, selector):
        self.verbs["count"] += 1
        assert self.kv.count(**selector) == len(self.model.listed(*key_range(**selector)))

    # --- writes

    @rule(key=KEYS, value=VALUES, lifetime=LIFETIMES)
    def set(self, key, value, lifetime):
        self.verbs["set" if lifetime is None else "set expire_in"] += 1
        result = self.kv.set(key, value, expire_in=None if lifetime is None else lifetime / 1_000)
        self.committed(result, [Change("set", key, value, lifetime)])

    @rule(key=KEYS)
    def delete(self, key):
        self.verbs["delete"] += 1
        assert self.kv.delete(key) is None
        self.model.apply([Change("delete", key)], "")

    @rule(data=st.data(), wanted=st.lists(changes(), max_size=4))
    def atomic(self, data, wanted):
        checks = data.draw(st.lists(st.sampled_from(self.known[-6:]), max_size=2))
        self.verbs["atomic"] += 1
        self.commit(checks, wanted)

    def commit(self, checks, wanted):
        if not self.shared.stamps_keys:
            wanted = [one._replace(kind="set") if one.kind == "stamped" else one for one in wanted]
        operation = self.kv.atomic()
        for key, versionstamp in checks:
            self.verbs["check"] += 1
            operation.check(key, versionstamp)
        for change in wanted:
            self.verbs[f"atomic {change.kind}"] += 1
            self.add(operation, change)
        failed = self.model.failed(checks)
        try:
            self.model.pinned().apply(wanted, "f" * 20)
        except Refused:
            if not failed:
                self.verbs["failing mutation"] += 1
                with pytest.raises(InvalidValueError):
                    operation.commit()
                return
        result = operation.commit()
        assert result.ok is not bool(failed)
        if failed:
            self.verbs["failed check"] += 1
            assert result.versionstamp is None
            assert [encode_key(key) for key in result.failed_checks] == [encode_key(key) for key in failed]
        else:
            self.committed(result, wanted)
        with pytest.raises(InvalidArgumentError):
            operation.commit()

    def add(self, operation, change):
        kind, key, value, lifetime, bounds, keep_deadline = change
        expire_in = None if lifetime is None else lifetime / 1_000
        if kind == "stamped":
            operation.set((*key, COMMIT_VERSIONSTAMP), value, expire_in=expire_in)
        elif kind == "set":
            operation.set(key, value, expire_in=expire_in)
        elif kind == "delete":
            operation.delete(key)
        elif isinstance(value, KvU64):
            getattr(operation, kind)(key, value, expire_in=expire_in, keep_deadline=keep_deadline)
        else:
            operation.mutate(kind, key, value, **bounds, expire_in=expire_in, keep_deadline=keep_deadline)

    def committed(self, result, wanted):
        assert result.ok
        assert result.versionstamp > self.last, "versionstamps rise in commit order"
        self.last = result.versionstamp
        self.model.apply(wanted, result.versionstamp)

    # --- time, snapshots, handles

    @rule(milliseconds=st.sampled_from([1, 499, 500, 2_000]))
    def pass_time(self, milliseconds):
        self.verbs["pass time"] += 1
        self.stores.clock.ms += milliseconds
        self.model.now += milliseconds

    @precondition(lambda self: len(self.snapshots) < 3)
    @rule()
    def snapshot(self):
        self.verbs["snapshot"] += 1
        self.snapshots.append((self.kv.snapshot(), self.model.pinned()))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data(), selector=selectors(), reverse=st.booleans(), key=KEYS)
    def read_snapshot(self, data, selector, reverse, key):
        self.verbs["read of a snapshot"] += 1
        state, model = data.draw(st.sampled_from(self.snapshots))
        self.compare(state.get(key), key, model.get(key))
        self.compare_listing(state, model, selector, {"reverse": reverse, "batch_size": 2})
        assert state.count(**selector) == len(model.listed(*key_range(**selector)))

    @precondition(lambda self: self.reopens)  # in one run of five: it costs more than all other verbs together
    @rule()
    def reopen(self):
        self.verbs["reopen"] += 1
        self.close_snapshots()
        self.kv = self.shared.reopen()

    @initialize(
        wanted=st.lists(changes().filter(lambda change: change.kind in {"set", "stamped"}), max_size=6),
        reopens=st.sampled_from(range(10)).map(lambda number: number > 7),
    )
    def begin(self, wanted, reopens):
        self.commit([], wanted)
        self.reopens = reopens

    @invariant()
    def the_store_is_the_dict(self):
        self.compare_listing(self.kv, self.model, {"prefix": ()}, {})


VERBS = {
    *(
        "get",
        "get_many",
        "list",
        "list keys_only",
        "page by cursor",
        "count",
        "set",
        "set expire_in",
        "delete",
        "atomic",
    ),
    *("check", "failed check", "failing mutation", "pass time", "snapshot", "read of a snapshot", "reopen"),
    *(f"atomic {kind}" for kind in ("set", "stamped", "delete", "sum", "min", "max")),
}


def explore(monkeypatch, tmp_path, store, examples, *, derandomize):
    engine, world = store.split("-")
    stores = Stores(engine, world, tmp_path)
    monkeypatch.setattr(CoreApi, "shared", Shared(stores), raising=False)
    monkeypatch.setattr(CoreApi, "verbs", Counter())
    run_state_machine_as_test(
        CoreApi,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            derandomize=derandomize,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    stores.close()
    print(f"{CoreApi.shared.runs} runs on {store}:", dict(sorted(CoreApi.verbs.items())))
    assert CoreApi.verbs.keys() == (VERBS if CoreApi.shared.stamps_keys else VERBS - {"atomic stamped"})
    assert min(CoreApi.verbs.values()) > 0


@pytest.mark.parametrize(
    ("store", "examples"),
    [
        ("memory-sync", 40),
        ("sqlite-async", 30),
        pytest.param("lmdb-sync", 30, marks=pytest.mark.servers),
        pytest.param("sqlite-sync", 40, marks=pytest.mark.servers),
        pytest.param("memory-async", 30, marks=pytest.mark.servers),
    ],
)
def test_the_store_is_a_dict(monkeypatch, tmp_path, store, examples):
    explore(monkeypatch, tmp_path, store, examples, derandomize=True)


@pytest.mark.soak
@pytest.mark.parametrize(
    "store", ["memory-sync", "sqlite-sync", "memory-async", "sqlite-async", "lmdb-sync", "lmdb-async"]
)
def test_the_store_is_a_dict_at_length(monkeypatch, tmp_path, store):
    explore(monkeypatch, tmp_path, store, 2_000, derandomize=False)
