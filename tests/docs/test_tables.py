"""Tables of the documentation that repeat what the code says are compared with the code."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import fields
from inspect import signature
from typing import Any

from kvmodels import (
    ExclusionConstraint,
    Index,
    IntervalIndex,
    KvModel,
    PrimaryKey,
    RankIndex,
    SearchIndex,
    TrigramIndex,
    UniqueConstraint,
    open_kv,
)
from kvmodels.api._sync.kv import Kv
from kvmodels.api._sync.queryset import QuerySet
from kvmodels.catalog import collection, keyspace
from kvmodels.catalog.keyspace import (
    CounterLayout,
    EntryLayout,
    RecordLayout,
    counter_key,
    index_layout,
    tenant_prefix,
    tenant_row_key,
)
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.lineage import LINEAGE_KEY
from kvmodels.engines.connect.engine import CONNECT_TRAITS
from kvmodels.engines.contract import Engine
from kvmodels.engines.etcd.engine import ETCD_TRAITS
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.postgres.engine import POSTGRES_TRAITS
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.url import ENGINES, MEMORY, OPTIONS
from kvmodels.flows.evolution import record_pass
from kvmodels.flows.execution import executor as batches
from kvmodels.flows.kv.leases import Leases
from kvmodels.flows.kv.queue import Delivery, take_message
from kvmodels.indexing.entries import StoredRecord
from kvmodels.indexing.kinds.geo import GeoMaintenance
from kvmodels.indexing.kinds.registry import maintenance_for
from kvmodels.limits import Limits, Traits
from kvmodels.query.planning import branches
from kvmodels.runtime.sync import run
from kvmodels.schema.compile import indexes as compiled_indexes
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare import declarations
from kvmodels.schema.declare.declarations import AggregateIndex
from kvmodels.schema.geometry.cells import LAST_CELL, packed_cell
from kvmodels.schema.geometry.point import GeoPoint
from kvmodels.schema.kinds.geo import GeoIndex
from tests.source_tree import REPOSITORY

DOCS = REPOSITORY / "docs"


def limit_rows() -> list[str]:
    """The table of limits as the page has to show it."""
    known = [Limits.EMBEDDED, Limits.LMDB, Limits.DENO, Limits.DENOKV_SERVER, Limits.ETCD, Limits.MATTERMOST]
    return [
        f"| `{field.name}` | " + " | ".join(number_or_none(getattr(limits, field.name)) for limits in known) + " |"
        for field in fields(Limits)
        if field.name.startswith("max_")
    ]


def number_or_none(limit: int | None) -> str:
    """A limit as the table has it."""
    return "none" if limit is None else f"{limit:,}"


def test_the_page_of_limits_shows_the_limits():
    page = (DOCS / "limits.md").read_text("utf-8")
    shown = [line for line in page.splitlines() if line.startswith("| `max_")]
    assert shown == limit_rows(), "\n".join(limit_rows())


def test_the_table_of_capabilities_shows_those_of_the_engines(tmp_path):
    engines: list[Engine] = [MemoryEngine(), SqliteEngine(str(tmp_path / "a.db")), LmdbEngine(str(tmp_path / "lmdb"))]
    known = [*(engine.capabilities.traits for engine in engines), POSTGRES_TRAITS, ETCD_TRAITS, CONNECT_TRAITS]
    for engine in engines:
        engine.close()
    page = (DOCS / "guides" / "engines.md").read_text("utf-8")
    shown = [line.split(" | ")[:-1] for line in page.splitlines() if line.startswith("| `") and line.count(" | ") == 7]
    names = [field.name for field in fields(Traits)]
    assert shown == [[f"| `{name}`", *(shown_trait(name, getattr(traits, name)) for traits in known)] for name in names]


def test_the_table_of_options_shows_those_of_the_engines():
    page = (DOCS / "guides" / "engines.md").read_text("utf-8")
    table = page.partition("\n## Options\n")[2].partition("\n## ")[0]
    shown: dict[str, set[str]] = {}
    for line in re.findall(r"^\| (`.*) \|$", table, re.MULTILINE):
        options, engines = line.split(" | ")
        named = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", engines.partition(";")[0])
        for option in re.findall("`(.*?)`", options):
            assert option not in shown
            shown[option] = set(named.split(", "))
    names = {**ENGINES, MEMORY: "memory"}
    known: dict[str, set[str]] = {option: {"all"} for option in ("limits", "durability", "clock", "readonly")}
    for scheme, options in OPTIONS.items():
        for option in options:
            known.setdefault(option, set()).add(names[scheme])
    assert shown == known


def shown_trait(name: str, value: Any) -> str:
    """A trait as the table has it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset):
        return ", ".join(map(str, sorted(value)))
    return str(value or {"clock": "not told"}.get(name, "all"))


def test_the_page_of_limits_shows_those_of_models_and_queries():
    page = (DOCS / "limits.md").read_text("utf-8")
    shown = [int(number.replace(",", "")) for number in re.findall(r"^\| [a-z].*? \| ([\d,]+) \|", page, re.MULTILINE)]
    sorts = signature(QuerySet.sort_in_memory).parameters["limit"].default
    assert shown == [
        declarations.MAX_FAN_OUT, compiled_indexes.MOST_ALTERNATIVES, branches.MAX_BRANCHES, branches.MAX_PRODUCT,
        sorts, batches.MAX_BATCH, collection.MAX_PLANS, record_pass.VIOLATIONS_REPORTED,
    ]  # fmt: skip


def test_every_design_note_is_listed():
    notes = sorted(path.name for path in (DOCS / "design").glob("[0-9]*.md"))
    page = (DOCS / "design" / "index.md").read_text("utf-8")
    navigation = (REPOSITORY / "mkdocs.yml").read_text("utf-8")
    assert re.findall(r"\(([0-9]+-[^)]*\.md)\)", page) == notes
    assert "- design/index.md" in navigation


class Sample(KvModel, collection="collection"):
    """A record whose keys the page of the layout writes with the names of their parts."""

    id: PrimaryKey[str]
    column: str | None

    class Meta:
        indexes = (UniqueConstraint("column", name="unique"), Index("column", name="index"))


class Located(KvModel, collection="collection"):
    """A record with a place."""

    id: PrimaryKey[str]
    column: str | None
    location: GeoPoint

    class Meta:
        indexes = (GeoIndex("location", group="column", name="index"),)


class Named(KvModel, collection="collection"):
    """A record with a text."""

    id: PrimaryKey[str]
    column: str | None
    name: str

    class Meta:
        indexes = (TrigramIndex("name", group="column", name="index"),)


class Counted(KvModel, collection="collection"):
    """A record that is counted in a group."""

    id: PrimaryKey[str]
    column: str | None

    class Meta:
        indexes = (AggregateIndex("column", name="index"),)


class Spanned(KvModel, collection="collection"):
    """A record with an interval."""

    id: PrimaryKey[str]
    column: str | None
    start: int
    end: int

    class Meta:
        indexes = (IntervalIndex("start", "end", group="column", name="index"),)


class Worded(KvModel, collection="collection"):
    """A record with words."""

    id: PrimaryKey[str]
    column: str | None
    text: str

    class Meta:
        indexes = (SearchIndex("text", group="column", name="index"),)


class Booked(KvModel, collection="collection"):
    """A record whose interval overlaps no other one."""

    id: PrimaryKey[str]
    column: str
    start: int
    end: int

    class Meta:
        indexes = (ExclusionConstraint("start", "end", group="column", name="index"),)


class Ranked(KvModel, collection="collection"):
    """A record with a rank."""

    id: PrimaryKey[str]
    column: str | None
    score: int

    class Meta:
        indexes = (RankIndex("score", group="column", low=0, high=15, levels=1, name="index"),)


def keys_of_the_layout() -> set[tuple[object, ...]]:
    """One key of every kind, built by the keyspace."""
    schema = schema_of(Sample)
    records = RecordLayout(schema.collection, schema.primary_key)
    pk = records.pack(("pk",))
    entries = {name: EntryLayout(schema.collection, index, 1) for name, index in schema.indexes.items()}
    counters = CounterLayout("collection", schema_of(Counted).indexes["index"], 2)
    intervals = maintenance_for(index_layout("collection", schema_of(Spanned).indexes["index"], 1))
    alone = maintenance_for(index_layout("collection", schema_of(Booked).indexes["index"], 1))
    packed = [
        tenant_row_key("name"),
        tenant_prefix("name") + encode_key(("key",)),
        records.key(pk),
        *alone.keys({"id": "pk", "column": "column", "start": 5, "end": 7}, pk),
        alone.layout.prefix + encode_key(("column", b"")),
        *intervals.keys({"id": "pk", "column": "column", "start": 5, "end": 7}, pk),
        *(entry.key for entry in entries["unique"].keys({"id": "pk", "column": "column"}, pk)),
        *(entry.key for entry in entries["index"].keys({"id": "pk", "column": "column"}, pk)),
        keyspace.HEADER_KEY,
        LINEAGE_KEY,
        keyspace.fence_key("collection", "index", 2),
        keyspace.build_key("collection", "index", 2),
        keyspace.drop_key("collection", "index", 2),
        keyspace.violation_key(keyspace.violation_prefix("collection", "index", 2), encode_key(("slot",)), pk),
        keyspace.key_counter("collection"),
        keyspace.history_prefix("collection") + pk + encode_key(("begin",)),
        keyspace.trash_prefix("collection") + pk,
        keyspace.also_prefix("collection") + pk + encode_key(("begin", 2)),
        keyspace.bulk_key("resume_id"),
        keyspace.bulk_prefix("resume_id", "run", "key") + pk,
        keyspace.bulk_prefix("resume_id", "run", "failed") + pk,
        keyspace.bulk_prefix("resume_id", "run", "item") + encode_key(("position",)),
        keyspace.bulk_prefix("resume_id", "run", "item") + encode_key(("position", "overwritten")),
        keyspace.guard_key("name", ("part",)),
        keyspace.shared_guard_key("name", ("part",)),
        keyspace.reference_guards("collection") + encode_key(("pk",)),
        keyspace.reference_anchors("collection") + encode_key(("pk",)),
        keyspace.migration_key("collection"),
        keyspace.chunk_key(b"blob_id", 2),
        keyspace.loose_key(b"blob_id"),
        keyspace.unmigrated_prefix("collection") + pk,
        keyspace.token_key("token"),
        *(counter_key(group, "kind") for group in counters.groups({"id": "pk", "column": "column"})),
    ]
    worded = schema_of(Worded)
    words = maintenance_for(index_layout("collection", worded.indexes["index"], 2))
    document = worded.prepare(Worded(id="pk", column="column", text="term")).document
    found = words.contents(StoredRecord(pk, document, b"", 0), MsgpackCodec())
    packed += [key.replace(b"index~2", b"index") for key in found.entries] + sorted(found.amounts)[:1]
    ranks = maintenance_for(index_layout("collection", schema_of(Ranked).indexes["index"], 2))
    found = ranks.contents(StoredRecord(pk, {"id": "pk", "column": "column", "score": 9}, b"", 0), MsgpackCodec())
    packed += [key.replace(b"index~2", b"index") for key in found.entries] + [*found.amounts]
    places = GeoMaintenance(keyspace.IndexLayout("collection", schema_of(Located).indexes["index"], 1))
    packed += places.keys({"id": "pk", "column": "column", "location": {"lat": 90.0, "lon": 180.0}}, pk)
    texts = maintenance_for(index_layout("collection", schema_of(Named).indexes["index"], 1))
    packed += texts.keys({"id": "pk", "column": "column", "name": "Ada"}, pk)
    return {decode_key(key) for key in packed}


def keys_of_the_services(kv: Kv) -> dict[str, tuple[Any, ...]]:
    """One key of every kind that queue, namespaces and locks write."""
    kv.enqueue("never delivered", backoff_schedule=(), keys_if_undelivered=[("failed",)])
    engine, form = kv._opening.open(), kv._form
    leases = Leases(engine.capabilities.traits, time.monotonic)
    delivery = run(engine, take_message(form, "owner", 1_000, lambda _: 0, leases))
    assert isinstance(delivery, Delivery)
    run(engine, delivery.fail())
    (note,) = (entry.key for entry in kv.list(("__kvmodels__", "dead")))
    kv.enqueue("message")
    kv.namespace("name").set("key", 1)

    def wait_in_line() -> None:
        with kv.lock("name"):
            pass

    with kv.lock("name"):
        waiter = threading.Thread(target=wait_in_line)
        waiter.start()
        while not kv.count(("__kvmodels__", "lock", "name")):
            time.sleep(0.001)
        held, ticket = (entry.key for entry in kv.list(("__kvmodels__", "lock")))
    waiter.join()
    (message,) = (entry.key for entry in kv.list(("__kvmodels__", "queue")))
    (value,) = (entry.key for entry in kv.list(("__kvmodels__", "ns")))
    announced = decode_key(keyspace.ANNOUNCED + encode_key((*message[2:], "name")))
    keys = {"message": message, "note": note, "value": value, "held": held, "ticket": ticket}
    return {**keys, "announced": announced}


def test_the_page_of_the_layout_shows_the_keys_that_the_keyspace_builds():
    page = (DOCS / "concepts" / "layout.md").read_text("utf-8")
    names: dict[str, Any] = {name: name for name in ("collection", "index", "token", "resume_id", "run", "position")}
    names |= {"blob_id": b"blob_id", "begin": "begin", "length_class": 2, "start": 5}
    names |= {"n": 2, "pk": ["pk"], "columns": ["column"]}
    names |= {"slot": encode_key(("slot",)), "collection_by_unique": "collection_by_unique"}
    names |= {"collection_by_index": "collection_by_index", "group": ["column"], "kind": "kind"}
    with open_kv() as kv:
        services = keys_of_the_services(kv)
    names |= {"name": "name", "parts": ["part"], "key": ["key"], "versionstamp": services["ticket"][3]}
    names |= {"cell": packed_cell(LAST_CELL), "term": "term", "shard": 0, "trigram": "ada"}
    names |= {"ranked": 9, "level": 1, "digits": 9}
    names |= {"reversed_id": services["note"][2], "number": services["note"][3]}
    names |= {"ready_ms": services["message"][2], "id": services["message"][3]}
    shown = re.findall(r"^\| `(\(.*?\))` \|", page, re.MULTILINE)
    written = {eval(key, {}, {**names, "kind": "count"} if "shard" in key else names) for key in shown}
    assert written == keys_of_the_layout() | set(services.values())
