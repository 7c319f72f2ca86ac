"""Nothing that the database of a tenant can do reads, writes or shows a key outside of the tenant.

The list of methods is derived from the classes: a new public method needs a call in the tables below. Each call is made
in a tenant between two others, and in a store of its own, and both must answer the same.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest

from kvmodels import (
    Blob,
    Count,
    Database,
    Encrypted,
    Field,
    KeyRing,
    Kv,
    KvModel,
    KvModelsError,
    PrimaryKey,
    Repository,
    Vector,
    VectorIndex,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.keyspace import ANNOUNCED, tenant_prefix, tenant_row_key
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import (
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    after_prefix,
)
from kvmodels.engines.contract import Snapshot
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.schema.geometry.point import GeoPoint
from tests.feeds.sinks import ListSink
from tests.passing_engine import PassingEngine
from tests.tenants.models import TENANT_MODELS, Account, Doc, User


class Paper(KvModel, collection="papers"):
    """Has content beside the record, sealed values, and vectors."""

    id: PrimaryKey[int]
    secret: Encrypted[str] = Field(default="a secret")
    scan: Blob | None = None
    look: Vector | None = None

    class Meta:
        indexes: ClassVar = (VectorIndex("look", dim=2, name="looks"),)


MODELS = (*TENANT_MODELS, Paper)
KEYS = KeyRing({1: bytes(range(32)), 2: bytes(range(32, 64))})
PREFIX, ROW = tenant_prefix("acme"), tenant_row_key("acme")


class Watched(PassingEngine):
    """Fails at a key outside of the tenant, while it watches."""

    watching = False

    def see(self, *keys: bytes | None) -> None:
        for key in keys:
            assert not self.watching or key is None or key.startswith(PREFIX) or key == ROW, key

    def see_written(self, *keys: bytes) -> None:
        """Allow the announcements of messages as well."""
        self.see(*[key for key in keys if not (key.startswith(ANNOUNCED) and key.endswith(encode_key(("acme",))))])

    def see_ranges(self, ranges: Sequence[ReadRange]) -> None:
        for one in ranges:
            self.see(one.start)
            assert not self.watching or one.end is None or one.end <= after_prefix(PREFIX)

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        self.see_ranges(ranges)
        self.see(None if guard is None else guard.key)
        return self.inner.read(ranges, guard, include_expired=include_expired, follow=self.watched(follow))

    def watched(self, follow: Follow | None) -> Follow | None:
        if follow is None:
            return None

        def seen(found: list[list[Any]]) -> Sequence[ReadRange]:
            more = follow(found)
            self.see_ranges(more)
            return more

        return seen

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        self.see_ranges(ranges)
        return self.inner.count(ranges, guard)

    def snapshot(self) -> Snapshot:
        return WatchedSnapshot(self, self.inner.snapshot())

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.see(*[check.key for check in write.checks])
        self.see_written(*[one.key for one in write.mutations])
        assert not self.watching or any(
            check.key == ROW or (check.key == PREFIX + b"\x02__kvmodels__\x00\x02header\x00" and check.versionstamp)
            for check in write.checks
        ), "a commit that checks neither the row nor the header"
        return self.inner.commit(write)

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        self.see_ranges([one])
        return self.inner.changes(one, after)


class WatchedSnapshot:
    def __init__(self, engine: Watched, inner: Snapshot) -> None:
        self._engine, self._inner = engine, inner
        self.keep, self.close = inner.keep, inner.close

    @property
    def versionstamp(self) -> bytes:
        return self._inner.versionstamp

    def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        self._engine.see_ranges(ranges)
        return self._inner.read(ranges, include_expired=include_expired, follow=self._engine.watched(follow))

    def count(self, ranges: Sequence[ReadRange]) -> Counted:
        self._engine.see_ranges(ranges)
        return self._inner.count(ranges)


def dumped(database: Any) -> str:
    file = io.StringIO()
    database.dump(file)
    return file.getvalue()


def in_transaction(db: Database) -> Any:
    with db.transaction() as tx:
        tx[User].patch(1, name="in a transaction")
        tx.kv.set(("raw", "tx"), 1)
        return tx[User].filter(color="red").count(), tx.kv.get(("raw", "tx"))


def locked(db: Database) -> Any:
    with db.kv.lock("one", ttl=60):
        return [lock.name for lock in db.kv.locks()]


def pinned(db: Database) -> Any:
    with db.kv.snapshot() as state:
        return list(state.list(("raw",)))


def loaded(db: Database) -> Any:
    file = io.StringIO()
    db.dump(file)
    file.seek(0)
    return db.load(file, on_conflict="ignore")


def confined(db: Database) -> Any:
    space = db.kv.namespace("space")
    space.set("key", 1)
    space.update("key", lambda value: value + 1)
    return space.get("key"), space.list_keys(), space.delete_all()


def stored(db: Database) -> Any:
    scan = db[Paper].save(Paper(id=2, scan=Blob(b"a scan"), look=Vector([3, 1])), force=True).scan
    assert scan is not None
    with scan.open() as file:
        return file.read(), db[Paper].patch(2, scan=Blob(b"another")).secret, db.check(blobs=True).ok


def allowed(db: Database) -> Any:
    with db.allow_scans():
        return db[User].filter(name="x").order_by("score").to_list()


def bulk(db: Database, **options: Any) -> Any:
    users = [User(id=at, email=f"bulk {at}", color="blue") for at in range(50, 55)]
    return db[User].bulk_create(users, on_conflict="ignore", **options)


def imported(db: Database) -> Any:
    with TemporaryDirectory() as folder:
        file = Path(folder, "users.csv")
        file.write_text("id,email,color\n60,file 60,blue\n")
        return db[User].bulk_create_from(file, on_conflict="ignore").rows


OF_DATABASE: dict[str, Callable[[Database], Any]] = {
    "acting": lambda db: db.acting("ada"),
    "allow_scans": allowed,
    "add_observer": lambda db: db.add_observer(print),
    "apply": lambda db: db.apply(),
    "build_index": lambda db: db.build_index(User, "color"),
    "build_indexes": lambda db: db.build_indexes(),
    "check": lambda db: db.check(repair=True),
    "close": lambda db: db.close() if db.tenant_name else None,
    "collections": lambda db: db.collections(),
    "copy_tenant": lambda db: db.copy_tenant("x", as_="y"),
    "create_tenant": lambda db: db.create_tenant("other") if db.tenant_name else None,
    "drop_collection": lambda db: db.drop_collection("nothing"),
    "drop_index": lambda db: db.drop_index("nothing", "nothing"),
    "dump": dumped,
    "each_tenant": lambda db: db.each_tenant(lambda tenant: None) if db.tenant_name else None,
    "explain_key": lambda db: str(db.explain_key(("users", 1))),
    "follow": lambda db: db.follow([User], ListSink()).catch_up(),
    "forget_bulk": lambda db: db.forget_bulk("run"),
    "from_engine": lambda db: None,
    "indexes": lambda db: [str(one) for one in db.indexes()],
    "kv": lambda db: None,
    "listen_tenants": lambda db: db.listen_tenants(print) if db.tenant_name else None,
    "load": loaded,
    "metrics": lambda db: db.metrics(),
    "migrate": lambda db: db.migrate(User),
    "models": lambda db: db.models,
    "outcome": lambda db: db.outcome("token"),
    "plan": lambda db: str(db.plan()),
    "remove_observer": lambda db: db.remove_observer(print),
    "remove_tenant": lambda db: db.remove_tenant("other") if db.tenant_name else None,
    "repository": lambda db: db.repository(User).count(),
    "resolve": lambda db: db.resolve(User),
    "rotate": lambda db: db.rotate(Paper, to=2),
    "settings": lambda db: db.settings if db.tenant_name else None,
    "signals": lambda db: None,
    "sweep_blobs": lambda db: db.sweep_blobs(),
    "stats": lambda db: [one.records.rows for one in db.stats(exact=True).collections],
    "tenant": lambda db: db.tenant("other") if db.tenant_name else None,
    "tenant_models": lambda db: db.tenant_models,
    "tenant_name": lambda db: None,
    "tenants": lambda db: db.tenants() if db.tenant_name else None,
    "transaction": in_transaction,
    "transactional": lambda db: db.transactional()(lambda tx: tx[User].count())(),
    "url": lambda db: None,
    "violations": lambda db: db.violations(User),
    "watch_tenants": lambda db: db.watch_tenants(User) if db.tenant_name else None,
}

OF_KV: dict[str, Callable[[Database], Any]] = {
    "atomic": lambda db: db.kv.atomic().check(("raw", 9), None).set(("raw", 1), 1).sum(("hits",), 2).commit().ok,
    "backup": lambda db: db.kv.backup("/nowhere/copy.db") if db.tenant_name else None,
    "close": lambda db: db.kv.close(),
    "count": lambda db: db.kv.count(("raw",)),
    "dead_letters": lambda db: list(db.kv.dead_letters()),
    "delete": lambda db: db.kv.delete(("raw", 1)),
    "dump": lambda db: len(dumped(db.kv).splitlines()),
    "enqueue": lambda db: db.kv.enqueue("later", delay=600, keys_if_undelivered=[("raw", "dead")]).ok,
    "get": lambda db: db.kv.get(("raw", 2)).value,
    "get_many": lambda db: [one.value for one in db.kv.get_many([("raw", 1), ("raw", 2), ("raw", 3)])],
    "list": lambda db: [one.key for one in db.kv.list((), batch_size=3) if not {"blob", "loose"} & {*one.key[:2]}],
    "listen": lambda db: None,
    "load": lambda db: db.kv.load(io.StringIO("{}")),
    "load_deno": lambda db: db.kv.load_deno("/nowhere"),
    "lock": locked,
    "locks": lambda db: list(db.kv.locks()),
    "messages": lambda db: len(list(db.kv.messages())),
    "namespace": confined,
    "set": lambda db: db.kv.set(("raw", 2), 2).ok,
    "snapshot": pinned,
    "unsafe": lambda db: db.kv.unsafe().set(("__kvmodels__", "own"), 1).ok,
    "update": lambda db: db.kv.update(("raw", 1), lambda value: [value]),
    "watch": lambda db: [one[0].value for one in [next(iter(db.kv.watch([("raw", 2)], timeout=0)), [None])] if one[0]],
}

OF_REPOSITORY: dict[str, Callable[[Database], Any]] = {
    "aggregate": lambda db: db[User].filter(color="red").aggregate(),
    "all": lambda db: db[User].all().count(),
    "allow_scan": lambda db: db[User].allow_scan().filter(name="x").to_list(),
    "as_of": lambda db: db[Doc].as_of("0" * 20),
    "bulk_create": bulk,
    "bulk_create_from": imported,
    "bulk_update": lambda db: db[User].bulk_update(db[User].filter(color="blue")[:3].to_list(), ["name"]),
    "changed_since": lambda db: db[User].changed_since(),
    "count": lambda db: db[User].count(),
    "create": lambda db: db[Doc].create(owner=1, title="new").id,
    "delete": lambda db: db[User].filter(color="gone").delete(),
    "detach": lambda db: db[User].detach(db[User].get(1)),
    "distinct": lambda db: db[User].values("color").distinct().to_list(),
    "earliest": lambda db: db[User].earliest("id"),
    "exclude": lambda db: db[User].exclude(color="red").allow_scan().count(),
    "exists": lambda db: db[User].exists(),
    "expires_at": lambda db: db[User].expires_at(1),
    "explain": lambda db: str(db[User].filter(color="red").explain(analyze=True)),
    "explain_aggregate": lambda db: str(db[User].explain_aggregate()),
    "explain_referrers": lambda db: str(db[User].explain_referrers([db[User].get(1)], Doc.owner, limit=9)),
    "fetch_referrers": lambda db: db[User].fetch_referrers([db[User].get(1)], Doc.owner, limit=9),
    "filter": lambda db: db[User].filter(color="red", email__startswith="a").to_list(),
    "first": lambda db: db[User].order_by("-id").first(),
    "forget": lambda db: db[Doc].forget(10**6, including=True),
    "get": lambda db: (db[User].get(1), db[User].get(email="ada@x.org")),
    "get_or_create": lambda db: db[User].get_or_create(email="new@x.org", defaults={"id": 90, "color": "red"}),
    "get_or_none": lambda db: db[User].get_or_none(email="nobody"),
    "group_by": lambda db: db[User].group_by("color").aggregate(),
    "history": lambda db: [sorted(one.changes or ()) for one in db[Doc].history(1)],
    "in_bulk": lambda db: db[User].in_bulk([1, 2, 77]),
    "insert": lambda db: db[User].insert(User(id=1, email="z", color="z")),
    "iterator": lambda db: list(db[User].iterator(batch_size=2)),
    "last": lambda db: db[User].last(),
    "latest": lambda db: db[User].latest("id"),
    "mutate": lambda db: db[User].mutate(1, lambda user: setattr(user, "score", user.score + 1)),
    "nearest": lambda db: db[User].nearest("home", GeoPoint(lat=1, lon=1))[:3].to_list(),
    "only": lambda db: db[User].only(User).to_list(),
    "order_by": lambda db: db[User].order_by("email").values_list("email", flat=True).to_list(),
    "page": lambda db: db[User].page(size=2, after=db[User].page(size=1).next_cursor),
    "patch": lambda db: db[User].patch(2, name="patched", color="green"),
    "links": lambda db: [
        db[Doc].links(Doc.readers).set(1, [1, 2]),
        db[Doc].links(Doc.readers).add(1, 3),
        db[Doc].links(Doc.readers).fetch([1]),
        db[Doc].filter(readers__color="blue").to_list(),
    ],
    "rank": lambda db: db[User].rank("board")[:3],
    "refresh": lambda db: db[User].refresh(db[User].get(1)),
    "related": lambda db: db[Doc].related(db[Doc].get(1), Doc.owner),
    "remove": lambda db: (db[User].remove(3), db[User].remove(1)),
    "remove_cascade": lambda db: db[User].remove_cascade(3, resume_id="run"),
    "rename": lambda db: db[User].rename(2, 2),
    "restore": lambda db: db[Doc].restore(10**6),
    "reverse": lambda db: db[User].reverse().first(),
    "revert": lambda db: db[Doc].revert(10**6, "0" * 20),
    "save": lambda db: (db[User].save(db[User].get(2)), stored(db)),
    "search": lambda db: [hit.record for hit in db[User].search("by_name", "lovelace")[:3]],
    "similar": lambda db: [paper.id for paper, _ in db[Paper].similar("looks", [1, 0])[:3]],
    "sort_in_memory": lambda db: db[User].sort_in_memory(50).order_by("score").first(),
    "to_arrow": lambda db: db[User].to_arrow(columns=["id"]).to_pylist(),
    "to_list": lambda db: db[User].to_list(),
    "to_pandas": lambda db: db[User].to_pandas(columns=["id"]).to_dict(),
    "to_parquet": lambda db: db[User].to_parquet(io.BytesIO(), columns=["id"]),
    "to_polars": lambda db: db[User].to_polars(columns=["id"]).to_dicts(),
    "trash": lambda db: len(list(db[Doc].trash())),
    "update": lambda db: db[User].filter(color="red").update(score=7),
    "update_or_create": lambda db: db[User].update_or_create(email="ada@x.org", defaults={"score": 3}),
    "using_index": lambda db: db[User].using_index("color").filter(color="red").count(),
    "values": lambda db: db[User].values("id", "email").to_list(),
    "values_list": lambda db: db[User].values_list("id", flat=True).to_list(),
    "watch": lambda db: None,
    "with_counts": lambda db: db[User].with_counts(docs=Count(Doc.owner)).to_list(),
    "with_related": lambda db: db[Doc].with_related(Doc.owner).to_list(),
}

TABLES: dict[type, dict[str, Callable[[Database], Any]]] = {
    Database: OF_DATABASE,
    Kv: OF_KV,
    Repository: OF_REPOSITORY,
}
CALLS = [(cls.__name__, name, call) for cls, table in TABLES.items() for name, call in sorted(table.items())]

OF_THE_STORE = {
    "add_observer",
    "remove_observer",
    "backup",
    "copy_tenant",
    "create_tenant",
    "each_tenant",
    "listen_tenants",
    "remove_tenant",
    "tenant",
    "tenants",
    "watch_tenants",
    "metrics",
}
"""Calls that a tenant refuses, because they belong to the whole store."""


@pytest.mark.parametrize("cls", TABLES)
def test_the_tables_have_each_public_method_of_the_classes(cls):
    assert TABLES[cls].keys() == {name for name in dir(cls) if not name.startswith("_")}


def fill(db: Database) -> Database:
    db[User].create(id=1, email="ada@x.org", color="red", name="Ada Lovelace", home=GeoPoint(lat=1, lon=2), score=9)
    db[User].create(id=2, email="bob@x.org", color="red", name="Bob")
    db[User].create(id=3, email="cy@x.org", color="blue", home=GeoPoint(lat=3, lon=4))
    db[Doc].create(owner=1, title="one")
    db[Paper].create(id=1, scan=Blob(b"one"), look=Vector([1, 2]))
    db.kv.set(("raw", 1), "raw")
    return db


def shown(call: Callable[[Database], Any], db: Database) -> str:
    """Return the result or the error of a call as text, without the versionstamps, ids and moments of a store."""
    try:
        answer = repr(call(db))
    except KvModelsError as error:
        answer = f"{type(error).__name__}: {error} {error.data}"
    except (TypeError, OSError) as error:
        answer = f"{type(error).__name__}: {error}"
    answer = re.sub(r'"\$bytes":"[^"]*"', "…", answer)  # random ids of blobs and sealed values
    for pattern in (r"\b[0-9a-f]{20}\b", r"\b[0-9A-HJKMNP-TV-Z]{26}\b", r"0x[0-9a-f]+", r"\d{13}", r"took_ms=[\d.]+"):
        answer = re.sub(pattern, "…", answer)
    return re.sub(r"datetime\.datetime\([^)]*\)|versionstamp=\S+|\d+\.\d+ ms", "…", answer)


def opened(engine: Any) -> Database:
    return Database.from_engine(engine, DatabaseCore([Account], tenant_models=MODELS, keys=KEYS))


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "all-capabilities"])
@pytest.mark.parametrize("seed", [1, *[pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 30)]])
def test_a_tenant_equals_a_store_of_its_own_and_touches_nothing_else(seed: int, watched: bool):
    engine = Watched(MemoryEngine()) if watched else MemoryEngine()
    store = opened(engine)
    store[Account].create(id=1, email="ada@x.org")
    for name in ("acm", "acme", "acme2"):
        store.create_tenant(name)
        fill(store.tenant(name))
    neighbours = {name: dumped(store.tenant(name).kv) for name in ("acm", "acme2")}
    own = fill(Database("memory://", models=MODELS, keys=KEYS))
    acme = store.tenant("acme")
    calls = CALLS * 2
    random.Random(seed).shuffle(calls)
    for cls, name, call in calls:
        if isinstance(engine, Watched):
            engine.watching = True
        found = shown(call, acme)
        if isinstance(engine, Watched):
            engine.watching = False
        assert "acme" not in found, (cls, name, found)
        assert "__kvmodels__', 'tenant" not in found, (cls, name, found)
        if name in OF_THE_STORE:
            assert found.startswith("UnsupportedError"), (cls, name, found)
        else:
            assert found == shown(call, own), (cls, name)
    assert {name: dumped(store.tenant(name).kv).splitlines()[1:] for name in neighbours} == {
        name: lines.splitlines()[1:] for name, lines in neighbours.items()
    }
    assert store[Account].count() == 1
    assert acme.check().ok


def test_a_tenant_in_a_tenant_is_refused_and_shown_by_its_name_alone():
    store = opened(MemoryEngine())
    store.create_tenant("acme")
    acme = store.tenant("acme")
    assert (repr(acme), acme.tenant_name, store.tenant_name) == (
        "<Database tenant 'acme' models=[User, Doc, Paper, DocReaders]>",
        "acme",
        None,
    )
    links = acme[Doc].links(Doc.readers).model
    assert (acme.url, acme.settings, acme.models) == (None, None, (*MODELS, links))
    acme.close()
    assert acme[User].count() == 0
