"""An independent judge of a store: what every index entry should be, recomputed from raw rows, against what is there.

It imports neither the write compiler, nor the layout of keys, nor the column codecs, nor the filters: columns are
encoded a second time in ``tests/oracle_columns.py``, places and intervals in ``tests/oracle_kinds.py``; declarations
are read and conditions are evaluated in ``tests/oracle_specs.py``. What is shared with the library is the
order-preserving encoding of key parts, which is held to vectors recorded from Deno, and the value codec, which has
golden files.

    assert audit(read_store(db.kv), [spec_of(User)]) == []
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.operations import Entry, GuardFailed, ReadRange, Row
from kvmodels.core.values import KvU64
from kvmodels.engines.contract import Engine
from kvmodels.errors import KvModelsError
from tests.limited_engine import LimitedEngine
from tests.oracle_columns import column_part, packed_part
from tests.oracle_kinds import FLOOR, bucket_digits, overlapping, special_parts, statistics
from tests.oracle_specs import CollectionSpec, IndexSpec, computed_values, holds, in_spans, spec_of, values_at
from tests.store_codecs import codec_of

__all__ = [
    "KINDS",
    "CollectionSpec",
    "Fault",
    "IndexSpec",
    "Undecodable",
    "audit",
    "column_part",
    "read_engine",
    "read_store",
    "same",
    "spec_of",
]

LIBRARY = "__kvmodels__"
BUILDING = ("write_only", "pending")
KINDS = (
    "missing",
    "dangling",
    "wrong value",
    "wrong owner",
    "wrong deadline",
    "wrong versionstamp",
    "wrong count",
    "wrong computed",
    "duplicate",
    "overlap",
    "foreign",
    "undecodable",
    "undeclared",
    "header",
)
HIGH = 2**32
MODULUS = 2**64


class Fault(NamedTuple):
    """One thing that is wrong: what, the index or collection, the key, and the primary key concerned."""

    kind: str
    where: str
    key: tuple[Any, ...]
    primary_key: tuple[Any, ...] | None = None


class Undecodable(NamedTuple):
    """Stands for a stored value that the codec cannot read."""

    data: bytes


# --- reading a store --------------------------------------------------------------------------------------------------


def read_store(kv: Any) -> list[Entry]:
    """Everything in the store of a synchronous ``Kv``, with values as models store them: with V8, ints for numbers."""
    return read_engine(kv._opening.open())


def read_engine(engine: Engine, *, include_expired: bool = False) -> list[Entry]:
    """Everything that an engine holds; values that cannot be decoded are ``Undecodable``.

    It is one state where a read may have 100,000 rows; over KV Connect nothing may be written meanwhile.
    """
    store = engine.inner if isinstance(engine, LimitedEngine) else engine  # which has all rows in one read
    codec = codec_of(store)
    entries = []
    for row in _rows_of(store, include_expired=include_expired):
        try:
            value = codec.decode_unchecked(row.value, row.encoding, row.key)
        except KvModelsError:
            value = Undecodable(row.value)
        entries.append(Entry(decode_key(row.key), value, row.versionstamp.hex(), row.expire_at))
    return entries


def _rows_of(engine: Engine, *, include_expired: bool) -> Iterator[Row]:
    start, most = b"", engine.limits.max_read_entries
    while True:
        result = engine.read([ReadRange(start, b"\xff", limit=most)], include_expired=include_expired)
        assert not isinstance(result, GuardFailed)
        yield from result.ranges[0]
        if len(result.ranges[0]) < most:
            return
        start = result.ranges[0][-1].key + b"\0"


# --- the judgement ----------------------------------------------------------------------------------------------------


@dataclass
class _Index:
    """One listed generation of an index."""

    spec: IndexSpec
    prefix: str
    state: str
    place: tuple[str, str, int]
    where: Any = None
    fence: str | None = None
    cursor: bytes | None = None
    violations: set[tuple[bytes, bytes]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Wanted:
    index: _Index
    key: tuple[Any, ...]
    slot: bool
    record: Entry
    primary_key: tuple[Any, ...]
    held: bytes = b""


def audit(entries: Iterable[Entry], specs: Iterable[CollectionSpec]) -> list[Fault]:
    """Everything that is wrong with a store, in the order of its keys per kind of check; empty when it is exact.

    Args:
        entries: one consistent reading of the whole store.
        specs: every collection that the store holds.
    """
    return _Audit(list(entries), {spec.name: spec for spec in specs}).run()


class _Audit:
    def __init__(self, entries: Sequence[Entry], specs: Mapping[str, CollectionSpec]) -> None:
        self._specs = specs
        self._faults: list[Fault] = []
        self._by_prefix: dict[Any, list[Entry]] = {}
        for entry in entries:
            self._by_prefix.setdefault(entry.key[0] if type(entry.key[0]) is str else entry.key, []).append(entry)
        self._library = self._by_prefix.pop(LIBRARY, [])
        self._wanted: dict[bytes, _Wanted] = {}
        self._counters: list[tuple[_Index, Entry]] = []
        self._counts: dict[bytes, tuple[_Index, tuple[Any, ...], int]] = {}

    def run(self) -> list[Fault]:
        listed = {name: list(self._listed(spec)) for name, spec in self._specs.items()}
        self._bookkeeping([index for indexes in listed.values() for index in indexes])
        for name, spec in self._specs.items():
            self._records(spec, listed[name], self._by_prefix.pop(name, []))
        for indexes in listed.values():
            for index in indexes:
                self._entries(index, self._by_prefix.pop(index.prefix, []))
        for spec in self._specs.values():
            self._compare_counters(spec)
        for wanted in self._wanted.values():
            if not self._excused(wanted):
                self._fault("missing", wanted.index.spec.name, wanted.key, wanted.primary_key)
        for rest in self._by_prefix.values():
            for entry in rest:
                if any(entry.key[0] == name or str(entry.key[0]).startswith(f"{name}_by_") for name in self._specs):
                    self._fault("undeclared", str(entry.key[0]), entry.key)
        return self._faults

    def _fault(self, kind: str, where: str, key: tuple[Any, ...], primary_key: tuple[Any, ...] | None = None) -> None:
        assert kind in KINDS
        self._faults.append(Fault(kind, where, key, primary_key))

    # --- header and bookkeeping -------------------------------------------------------------------------------

    def _header(self) -> Mapping[str, Any]:
        found = [entry.value for entry in self._library if entry.key[1:] == ("header",)]
        header = found[0] if found else {}
        if not (isinstance(header, dict) and header.get("format") == 1 and isinstance(header.get("collections"), dict)):
            self._fault("header", LIBRARY, (LIBRARY, "header"))
            return {}
        collections: Mapping[str, Any] = header["collections"]
        return collections

    def _listed(self, spec: CollectionSpec) -> Iterator[_Index]:
        """The generations that the header lists, each with the declaration that it was made from."""
        stored = self._header().get(spec.name)
        if stored is None or [column[0] for column in stored["primary_key"]] != list(spec.primary_key):
            self._fault("header", spec.name, (LIBRARY, "header"))
            return
        for item in stored["indexes"]:
            signature, number = item["signature"], item["generation"]
            dropping = item["state"] == "dropping"
            told = [
                index
                for index in spec.indexes
                if index.name == item["name"] and (dropping or _is_of(spec, index, signature))
            ]
            known = told and 1 <= number <= stored["generations"].get(item["name"], 0)
            if known and item["state"] == "disabled":  # never built, so that it has no entries
                continue
            if not known or item["state"] not in ("write_only", "pending", "readable", "dropping"):
                self._fault("header", item["name"], (LIBRARY, "header"))
                continue
            prefix = f"{spec.name}_by_{item['name']}" + (f"~{number}" if number > 1 else "")
            place = (spec.name, item["name"], number)
            yield _Index(told[0], prefix, item["state"], place, signature.get("where"))

    def _bookkeeping(self, listed: list[_Index]) -> None:
        """Fences, progress and violations: there exactly while a generation is built or dropped."""
        by_place = {index.place: index for index in listed}
        for entry in self._library:
            kind, place = entry.key[1], entry.key[2:5]
            index = by_place.get(place)
            state = index.state if index else None
            if kind == "fence" and index and state in BUILDING:
                index.fence = entry.versionstamp
            elif kind == "build" and index and state == "write_only":
                index.cursor = entry.value["cursor"]
            elif kind == "violation" and index and state in (*BUILDING, "dropping"):
                index.violations.add((entry.key[5], encode_key(entry.key[6:])))
            elif kind == "counter" and index and index.spec.counts:
                self._counters.append((index, entry))
            elif kind not in ("header", "token", "guard", "share", "bulk", "keys") and not (
                state == "dropping" and kind in ("fence", "build", "drop")
            ):
                self._fault("foreign", LIBRARY, entry.key)
        for index in listed:
            if (index.state in BUILDING and index.fence is None) or (
                index.state == "write_only" and index.cursor is None
            ):
                self._fault("header", index.spec.name, (LIBRARY, "header"))

    # --- records ----------------------------------------------------------------------------------------------

    def _records(self, spec: CollectionSpec, indexes: list[_Index], records: list[Entry]) -> None:
        for record in records:
            document = record.value
            if not isinstance(document, dict) or not all(isinstance(name, str) for name in document):
                self._fault("undecodable", spec.name, record.key, record.key[1:])
                continue
            primary_key = tuple(column_part(spec.types[name], document.get(name)) for name in spec.primary_key)
            if _packed((spec.name, *primary_key)) != _packed(record.key):
                self._fault("foreign", spec.name, record.key)
                continue
            self._computed(spec, record, primary_key)
            for index in indexes:
                if index.state != "dropping":
                    self._want(spec, index, record, primary_key)

    def _computed(self, spec: CollectionSpec, record: Entry, primary_key: tuple[Any, ...]) -> None:
        """Compare the stored values of functions with those of the record's fields."""
        stored = record.value.get("$kv", {}).get("c", {})
        for name, column in spec.computed.items():
            if column.stored_as not in stored:
                continue  # an index on it, unless it is under construction, lacks its entry, and says so
            found = {packed_part(spec.types[name], value) for value in spec.values(record.value, name)}
            wanted = {packed_part(spec.types[name], value) for value in computed_values(spec, name, record.value)}
            if found != wanted:
                self._fault("wrong computed", name, record.key, primary_key)

    def _want(self, spec: CollectionSpec, index: _Index, record: Entry, primary_key: tuple[Any, ...]) -> None:
        """Note the entries that a record calls for in an index, if any, or what it adds to counters."""
        try:
            inside = holds(spec, index.spec.where, record.value)
            if index.where is not None and in_spans(spec, index.where, record.value) != inside:
                self._fault("header", index.spec.name, (LIBRARY, "header"), primary_key)
            rows = list(_rows(spec, index.spec, record.value)) if inside else []
            for name in index.spec.include if inside else ():
                record.value[name]
        except KeyError:
            wanted = _Wanted(index, (index.prefix,), False, record, primary_key)
            if not self._excused(wanted):
                self._fault("missing", index.spec.name, (index.prefix,), primary_key)
            return
        if index.spec.counts:
            self._count(spec, index, record, [columns for columns, _, _ in rows])
        if index.spec.sums is not None:
            return
        for columns, has_null, held in rows:
            if has_null and index.spec.special == "exclusion":
                continue
            if not (has_null and index.spec.nulls == "skip"):
                slot = index.spec.unique and not (has_null and index.spec.nulls == "distinct")
                key = (index.prefix, *columns, *(() if slot else primary_key))
                self._note(_Wanted(index, key, slot, record, primary_key, held))

    def _note(self, wanted: _Wanted) -> None:
        """One entry, and who else wants it."""
        index = wanted.index
        other = self._wanted.setdefault(_packed(wanted.key), wanted)
        if other is wanted:
            return
        # Two records with one unique value: legal only while an index is built, and then one of them is listed.
        listed = [claim for claim in (other, wanted) if self._excused(claim)]
        if not listed:
            self._fault("duplicate", index.spec.name, wanted.key, wanted.primary_key)
        elif listed == [other]:
            self._wanted[_packed(wanted.key)] = wanted

    def _excused(self, wanted: _Wanted) -> bool:
        """Whether an index under construction may lack this entry: not reached by the build yet, or a violation."""
        index, record = wanted.index, wanted.record
        if index.state not in BUILDING:
            return False
        if self._listed_as_violation(index, wanted.primary_key, _packed(wanted.key)):
            return True
        return index.cursor is not None and not _is_newer(index, record) and _packed(record.key) > index.cursor

    def _listed_as_violation(self, index: _Index, primary_key: tuple[Any, ...], slot: bytes = b"") -> bool:
        packed = encode_key(primary_key)
        return (slot, packed) in index.violations or (b"", packed) in index.violations

    # --- counters ---------------------------------------------------------------------------------------------

    def _count(self, spec: CollectionSpec, index: _Index, record: Entry, groups: list[tuple[Any, ...]]) -> None:
        """Add up what a record adds to its groups: while the index is built, only if it is newer than the fence.

        A record with a deadline, which only another program can have written, is not counted: nobody would take it
        out of its groups when it expires.
        """
        if record.expires_at is not None or (index.state in BUILDING and not _is_newer(index, record)):
            return
        if self._listed_as_violation(index, record.key[1:]):
            return
        if index.spec.scores:
            for group in {_packed(row[:-1]): row[:-1] for row in groups}.values():
                for kind, number in statistics(spec, index.spec, record.value).items():
                    self._add(index, (*group, 0, kind), number)
            return
        for group in groups:
            if index.spec.scale is not None:
                for digits in bucket_digits(spec, index.spec, record.value):
                    self._add(index, (*group[:-1], *digits), 1)
                continue
            self._add(index, (*group, "count"), 1)
            for name in index.spec.sums or ():
                (value,) = values_at(record.value, tuple(name.split(".")))
                if value is not None:
                    low = value % HIGH if value >= 0 else -(-value % HIGH)
                    self._add(index, (*group, f"sum:{name}"), low)
                    self._add(index, (*group, f"sum:{name}:high"), (value - low) // HIGH)
                    if _may_be_none(spec, name):
                        self._add(index, (*group, f"present:{name}"), 1)

    def _add(self, index: _Index, rest: tuple[Any, ...], number: int) -> None:
        key = (LIBRARY, "counter", *index.place, *rest)
        _, _, before = self._counts.get(_packed(key), (index, key, 0))
        self._counts[_packed(key)] = (index, key, before + number)

    def _compare_counters(self, spec: CollectionSpec) -> None:
        """Every counter row of a collection; one that is not there counts as 0, and so does a group that is gone."""
        for index, entry in self._counters:
            if index.place[0] != spec.name or index.state == "dropping":
                continue
            _, _, wanted = self._counts.pop(_packed(entry.key), (index, entry.key, 0))
            if not _is_counter_of(spec, index.spec, entry.key[5:]):
                self._fault("foreign", index.spec.name, entry.key)
            elif not isinstance(entry.value, KvU64):
                self._fault("wrong value", index.spec.name, entry.key)
            elif int(entry.value) != wanted % MODULUS:
                self._fault("wrong count" if wanted else "dangling", index.spec.name, entry.key)
            elif entry.expires_at is not None:
                self._fault("wrong deadline", index.spec.name, entry.key)
        for packed, (index, key, wanted) in list(self._counts.items()):
            if index.place[0] == spec.name:
                del self._counts[packed]
                if wanted % MODULUS:
                    self._fault("missing", index.spec.name, key)

    # --- entries ----------------------------------------------------------------------------------------------

    def _entries(self, index: _Index, entries: list[Entry]) -> None:
        if index.state == "dropping":
            return
        if index.spec.special == "exclusion":
            entries = self._compared(index, entries)
        for entry in entries:
            wanted = self._wanted.pop(_packed(entry.key), None)
            if wanted is not None and wanted.index is index:
                kind = self._difference(wanted, entry)
                if kind is not None:
                    self._fault(kind, index.spec.name, entry.key, wanted.primary_key)
            else:
                self._fault("dangling", index.spec.name, entry.key)

    def _compared(self, index: _Index, entries: list[Entry]) -> list[Entry]:
        """The entries of an exclusion constraint without the floors of its groups; overlaps are faults."""
        group = 1 + len(index.spec.columns)
        floors = [entry for entry in entries if len(entry.key) == group + 1 and entry.key[group] == FLOOR]
        for floor in floors:
            if floor.value != b"" or floor.expires_at is not None:
                self._fault("wrong value", index.spec.name, floor.key)
        rest = [entry for entry in entries if entry not in floors]
        for key in overlapping([(entry.key, entry.value) for entry in rest], group):
            self._fault("overlap", index.spec.name, key)
        return rest

    def _difference(self, wanted: _Wanted, entry: Entry) -> str | None:
        record, index = wanted.record, wanted.index.spec
        included = {name: record.value[name] for name in index.include}
        if index.store == "record":
            if not same(entry.value, record.value):
                return "wrong value"
            if entry.versionstamp != record.versionstamp:
                return "wrong versionstamp"
        elif wanted.slot:
            owner = list(wanted.primary_key)
            found = entry.value[0] if index.include and isinstance(entry.value, list) and entry.value else entry.value
            if not same(found, owner):
                return "wrong owner"
            if index.include and not same(entry.value, [owner, included]):
                return "wrong value"
        elif not same(entry.value, included if index.include else wanted.held):
            return "wrong value"
        return "wrong deadline" if entry.expires_at != record.expires_at else None


def _is_of(spec: CollectionSpec, index: IndexSpec, signature: Mapping[str, Any]) -> bool:
    """Whether a generation in the catalogue was made from this declaration; its condition is judged on records."""
    columns = [[column[0], column[2], *column[4:]] for column in signature["columns"]]
    ranked = [(name.removeprefix("-"), name.startswith("-")) for name in index.of] if index.scale is not None else []
    wanted = [_signature(spec, name, "desc" if down else "asc") for name, down in (*index.columns, *ranked)]
    kind = [signature["unique"], signature["nulls"], signature["store"], signature.get("include", [])]
    sums = None if index.sums is None else [_summed(name) for name in index.sums]
    told = signature.get("sums")
    return (
        columns == wanted
        and kind == [index.unique, index.nulls, index.store, list(index.include)]
        and (None if told is None else [[column[0], column[2], *column[4:]] for column in told]) == sums
        and ("where" in signature) == (index.where is not None)
        and signature.get("kind") == index.special
        and (index.special is None or _names(signature["options"]) == _columns_of(index))
    )


def _names(options: Mapping[str, Any]) -> list[str]:
    return [column[0] for column in options["columns"]]


def _columns_of(index: IndexSpec) -> list[str]:
    """The columns of a special kind besides those of keys: a place has two, a rank none."""
    if index.scale is not None:
        return []
    if index.terms is not None:
        return [index.terms]
    return [f"{index.of[0]}.lat", f"{index.of[0]}.lon"] if index.special == "geo" else list(index.of)


def _signature(spec: CollectionSpec, name: str, direction: str) -> list[Any]:
    """A column as the catalogue describes it, without codec and None."""
    plain: list[Any] = [name, direction]
    if spec.path(name) == (name,) and name not in spec.many:
        return plain
    return [*plain, {"path": list(spec.path(name)), "many": name in spec.many}]


def _summed(name: str) -> list[Any]:
    """A field that is summed, as the catalogue describes it: never what its function makes of it."""
    path = name.split(".")
    return [name, "asc", *([{"path": path, "many": False}] if len(path) > 1 else [])]


def _rows(
    spec: CollectionSpec, index: IndexSpec, document: Mapping[str, Any]
) -> Iterator[tuple[tuple[Any, ...], bool, bytes]]:
    """The distinct rows of key parts that a document has in an index, whether a column is None, and their value."""
    choices: list[list[tuple[Any, bool]]] = []
    for name, descending in index.columns:
        distinct = {packed_part(spec.types[name], value): value for value in spec.values(document, name)}
        choices.append(
            [
                (column_part(spec.types[name], value, descending=descending), value is None)
                for _, value in sorted(distinct.items())
            ]
        )
    special = [((), b"")] if index.special is None else special_parts(spec, index, document)
    for row in product(*choices):
        for parts, held in special:
            yield (*(part for part, _ in row), *parts), any(null for _, null in row), held


def _is_newer(index: _Index, record: Entry) -> bool:
    """Whether a record was last written after the fence of the build."""
    return index.fence is not None and str(record.versionstamp) > index.fence


def _is_counter_of(spec: CollectionSpec, index: IndexSpec, rest: tuple[Any, ...]) -> bool:
    """Whether the end of a counter key is a group and a counter of this index."""
    if index.scale is not None:
        *group, level, digits = rest
        levels = range(1, index.scale[2] + 1)
        return len(group) == len(index.columns) and level in levels and 0 <= digits < 16**level
    if index.scores:
        *group, shard, kind = rest
        return len(group) == len(index.columns) and shard == 0 and kind in ("count", "length")
    kinds = {"count"}
    for name in index.sums or ():
        kinds |= {f"sum:{name}", f"sum:{name}:high", *([f"present:{name}"] if _may_be_none(spec, name) else [])}
    return len(rest) == len(index.columns) + 1 and type(rest[-1]) is str and rest[-1] in kinds


def _may_be_none(spec: CollectionSpec, name: str) -> bool:
    """Whether a field, or a model on the way to it, is optional."""
    path = name.split(".")
    return any(".".join(path[:end]) in spec.nullable for end in range(1, len(path) + 1))


def _packed(key: tuple[Any, ...]) -> bytes:
    """Keys are compared as bytes, because True, 1 and 1.0 are equal in Python and three different keys."""
    return encode_key(key)


def same(one: Any, other: Any) -> bool:
    """Equality that tells True from 1 from 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)
