"""An independent judge of a store: what every index entry should be, recomputed from raw rows, against what is there.

It imports neither the write compiler, nor the layout of keys, nor the column codecs: columns are encoded here a second
time, from the table in ``docs/design/0002-column-encoding.md``. What is shared with the library is the order-preserving
encoding of key parts, which is held to vectors recorded from Deno, and the value codec, which has golden files.

    assert audit(read_store(db.kv), [spec_of(User)]) == []
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from kvmodels.encoding.values import MsgpackCodec
from kvmodels.engines.base import Engine
from kvmodels.errors import KvModelsError
from kvmodels.keys import decode_key, encode_key
from kvmodels.operations import Entry, GuardFailed, ReadRange
from kvmodels.ulid import ULID

LIBRARY = "__kvmodels__"
BUILDING = ("write_only", "pending")
KINDS = (
    "missing",
    "dangling",
    "wrong value",
    "wrong owner",
    "wrong deadline",
    "wrong versionstamp",
    "duplicate",
    "foreign",
    "undecodable",
    "undeclared",
    "header",
)


class Fault(NamedTuple):
    """One thing that is wrong: what, the index or collection, the key, and the primary key concerned."""

    kind: str
    where: str
    key: tuple[Any, ...]
    primary_key: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class IndexSpec:
    """An index as plain test data: columns are (field, descending)."""

    name: str
    columns: tuple[tuple[str, bool], ...]
    unique: bool = False
    nulls: str = "distinct"
    store: str | None = None


@dataclass(frozen=True)
class CollectionSpec:
    """A collection as plain test data: ``types`` holds the documented column type of every field in a key."""

    name: str
    primary_key: tuple[str, ...]
    types: Mapping[str, str]
    indexes: tuple[IndexSpec, ...]


class Undecodable(NamedTuple):
    """Stands for a stored value that the codec cannot read."""

    data: bytes


# --- what a model declares, from its annotations ----------------------------------------------------------------------

TYPES: Mapping[Any, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    UUID: "uuid",
    ULID: "ulid",
    date: "date",
    datetime: "datetime",
    time: "time",
    timedelta: "timedelta",
    Decimal: "decimal",
    IPv4Address: "ip",
    IPv6Address: "ip",
}


def spec_of(model: Any) -> CollectionSpec:
    """The declaration of a model class as test data; ``Meta`` of parents is not looked at."""
    types: dict[str, str] = {}
    primary_key: list[str] = []
    indexes: list[IndexSpec] = []
    for name, info in model.model_fields.items():
        marks = {type(mark).__name__: mark for mark in info.metadata}
        documented = _type_name(info.annotation)
        if documented is not None:
            types[name] = "number" if "KeyNumber" in marks else documented
        if "PrimaryKey" in marks:
            primary_key.append(name)
        for kind in ("Unique", "Indexed"):
            if kind in marks:
                mark = marks[kind]
                column = (name, getattr(mark, "descending", False))
                indexes.append(IndexSpec(mark.name or name, (column,), kind == "Unique", mark.nulls, mark.store))
    for index in getattr(model.__dict__.get("Meta"), "indexes", ()):
        columns = tuple((column.removeprefix("-"), column.startswith("-")) for column in index.fields)
        name = index.name or "_".join(column for column, _ in columns)
        indexes.append(IndexSpec(name, columns, type(index).__name__ == "UniqueConstraint", index.nulls, index.store))
    return CollectionSpec(model.__kv_options__.collection, tuple(primary_key), types, tuple(indexes))


def _type_name(annotation: Any) -> str | None:
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = [member for member in get_args(annotation) if member is not NoneType]
    if get_origin(annotation) is Literal:
        return TYPES[type(get_args(annotation)[0])]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return TYPES[type(next(iter(annotation)).value)]
    return TYPES.get(annotation) if isinstance(annotation, type) else None


# --- the documented table of columns ----------------------------------------------------------------------------------


def column_part(kind: str, stored: Any, *, descending: bool = False) -> Any:
    """The key part of a value as the document stores it."""
    if descending:
        packed = encode_key((column_part(kind, stored),)) + b"\x00"
        return bytes(255 - byte for byte in packed)
    if stored is None:
        return b""
    match kind:
        case "bytes":
            return b"\x01" + stored
        case "number":
            return float(stored)
        case "float":
            return float(stored) + 0.0
        case "datetime":
            return datetime.fromisoformat(stored).astimezone(UTC).isoformat(timespec="microseconds")
        case "time":
            return time.fromisoformat(stored).isoformat(timespec="microseconds")
        case "decimal":
            return _decimal_part(Decimal(stored))
        case "ip":
            address = ip_address(stored)
            return bytes([address.version]) + address.packed
    return stored


def _decimal_part(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return b"\x02"
    first = exponent + len(text) - 1
    text = text.rstrip("0")
    pairs = [int((text + "0")[at : at + 2]) + 1 for at in range(0, len(text), 2)]
    body = bytes([(first + 8192) // 256, (first + 8192) % 256, *pairs])
    return b"\x01" + bytes(255 - byte for byte in body) + b"\xff" if sign else b"\x03" + body


# --- reading a store --------------------------------------------------------------------------------------------------


def read_store(kv: Any) -> list[Entry]:
    """Everything that a synchronous ``Kv`` shows."""
    return list(kv.list(prefix=()))


def read_engine(engine: Engine, *, include_expired: bool = False) -> list[Entry]:
    """Everything that an engine holds; values that cannot be decoded are ``Undecodable``."""
    result = engine.read([ReadRange(b"", b"\xff")], include_expired=include_expired)
    assert not isinstance(result, GuardFailed)
    codec = MsgpackCodec()
    entries = []
    for row in result.ranges[0]:
        try:
            value = codec.decode(row.value, row.encoding, row.key)
        except KvModelsError:
            value = Undecodable(row.value)
        entries.append(Entry(decode_key(row.key), value, row.versionstamp.hex(), row.expire_at))
    return entries


# --- the judgement ----------------------------------------------------------------------------------------------------


@dataclass
class _Index:
    """One listed generation of an index."""

    spec: IndexSpec
    prefix: str
    state: str
    place: tuple[str, str, int]
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

    def run(self) -> list[Fault]:
        listed = {name: list(self._listed(spec)) for name, spec in self._specs.items()}
        self._bookkeeping([index for indexes in listed.values() for index in indexes])
        for name, spec in self._specs.items():
            self._records(spec, listed[name], self._by_prefix.pop(name, []))
        for indexes in listed.values():
            for index in indexes:
                self._entries(index, self._by_prefix.pop(index.prefix, []))
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
            signature = item["signature"]
            columns = tuple((name, direction == "desc") for name, _, direction, _ in signature["columns"])
            told = IndexSpec(item["name"], columns, signature["unique"], signature["nulls"], signature["store"])
            number = item["generation"]
            known = told in spec.indexes and 1 <= number <= stored["generations"].get(told.name, 0)
            if not known or item["state"] not in ("write_only", "pending", "readable", "dropping"):
                self._fault("header", told.name, (LIBRARY, "header"))
                continue
            prefix = f"{spec.name}_by_{told.name}" + (f"~{number}" if number > 1 else "")
            yield _Index(told, prefix, item["state"], (spec.name, told.name, number))

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
            elif kind not in ("header", "token") and not (state == "dropping" and kind in ("fence", "build", "drop")):
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
            for index in indexes:
                if index.state != "dropping":
                    self._want(spec, index, record, primary_key)

    def _want(self, spec: CollectionSpec, index: _Index, record: Entry, primary_key: tuple[Any, ...]) -> None:
        """Note the entry that a record calls for in an index, if any."""
        document = record.value
        if any(name not in document for name, _ in index.spec.columns):
            wanted = _Wanted(index, (index.prefix,), False, record, primary_key)
            if not self._excused(wanted):
                self._fault("missing", index.spec.name, (index.prefix,), primary_key)
            return
        has_null = any(document[name] is None for name, _ in index.spec.columns)
        if has_null and index.spec.nulls == "skip":
            return
        columns = tuple(
            column_part(spec.types[name], document[name], descending=descending)
            for name, descending in index.spec.columns
        )
        slot = index.spec.unique and not (has_null and index.spec.nulls == "distinct")
        wanted = _Wanted(index, (index.prefix, *columns, *(() if slot else primary_key)), slot, record, primary_key)
        other = self._wanted.setdefault(_packed(wanted.key), wanted)
        if other is wanted:
            return
        # Two records with one unique value: legal only while an index is built, and then one of them is listed.
        listed = [claim for claim in (other, wanted) if self._excused(claim)]
        if not listed:
            self._fault("duplicate", index.spec.name, wanted.key, primary_key)
        elif listed == [other]:
            self._wanted[_packed(wanted.key)] = wanted

    def _excused(self, wanted: _Wanted) -> bool:
        """Whether an index under construction may lack this entry: not reached by the build yet, or a violation."""
        index, record = wanted.index, wanted.record
        if index.state not in BUILDING:
            return False
        primary_key = encode_key(wanted.primary_key)
        if (_packed(wanted.key), primary_key) in index.violations or (b"", primary_key) in index.violations:
            return True
        newer = index.fence is not None and str(record.versionstamp) > index.fence
        return index.cursor is not None and not newer and _packed(record.key) > index.cursor

    # --- entries ----------------------------------------------------------------------------------------------

    def _entries(self, index: _Index, entries: list[Entry]) -> None:
        if index.state == "dropping":
            return
        for entry in entries:
            wanted = self._wanted.pop(_packed(entry.key), None)
            if wanted is not None and wanted.index is index:
                kind = self._difference(wanted, entry)
                if kind is not None:
                    self._fault(kind, index.spec.name, entry.key, wanted.primary_key)
            else:
                self._fault("dangling", index.spec.name, entry.key)

    def _difference(self, wanted: _Wanted, entry: Entry) -> str | None:
        record = wanted.record
        if wanted.index.spec.store == "record":
            if not same(entry.value, record.value):
                return "wrong value"
            if entry.versionstamp != record.versionstamp:
                return "wrong versionstamp"
        elif wanted.slot:
            if not same(entry.value, list(wanted.primary_key)):
                return "wrong owner"
        elif not same(entry.value, b""):
            return "wrong value"
        return "wrong deadline" if entry.expires_at != record.expires_at else None


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
