"""The source of model classes for the collections of a store.

Rules of this module: the text is a module that can be imported. Whatever the catalogue does not say becomes a comment,
never a guess that changes stored data. Whoever can write to the store can write its catalogue, so nothing of it is
printed as it is: a name is a checked identifier or a ``repr``, a type is built from known names, a comment is one line.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from keyword import iskeyword
from typing import Final

from kvmodels._support.visible import visible
from kvmodels.catalog.catalogue import IndexState
from kvmodels.flows.describe.catalogue import CollectionDescription, IndexStatus
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.declarations import declaration_text
from kvmodels.schema.declare.on_write import VERB_KEYWORDS
from kvmodels.schema.describe.conditions import is_source_name
from kvmodels.schema.describe.describe import ColumnDescription, HistoryDescription, IndexDescription

_TITLE: Final = '"""Models of a store, printed by kvmodels inspect."""'
_IMPORTS: Final[tuple[Mapping[str, tuple[str, ...]], ...]] = (
    {
        "datetime": (),
        "decimal": ("Decimal",),
        "ipaddress": ("IPv4Address", "IPv6Address"),
        "typing": ("Annotated", "Any"),
        "uuid": ("UUID",),
    },
    {"pydantic": ("IPvAnyAddress",)},
    {
        "kvmodels": (
            "CASCADE",
            "SET_NULL",
            "ULID",
            "AggregateIndex",
            "AsyncDatabase",
            "Blob",
            "Encrypted",
            "ForeignKey",
            "GeoPoint",
            "History",
            "Index",
            "Indexed",
            "KeyNumber",
            "KvModel",
            "MultiIndexed",
            "PrimaryKey",
            "Q",
            "Unique",
            "UniqueConstraint",
            "Vector",
        )
    },
)
"""The names that a printed module may need, by module, in groups; without names the module itself is imported."""

_TYPES: Final[Mapping[str, str]] = {
    **{name: name for name in ("bool", "int", "float", "str", "bytes", "None", "list", "set", "frozenset")},
    **{name: name for name in ("dict", "tuple")},
    "number": "Annotated[int, KeyNumber()]",
    "uuid": "UUID",
    "ulid": "ULID",
    "date": "datetime.date",
    "datetime": "datetime.datetime",
    "time": "datetime.time",
    "timedelta": "datetime.timedelta",
    "decimal": "Decimal",
    "ip4": "IPv4Address",
    "ip6": "IPv6Address",
    "ip": "IPvAnyAddress",
}
_OF_KINDS: Final[Mapping[str, str]] = {**_TYPES, "GeoPoint": "GeoPoint", "Vector": "Vector"}
"""The types of fields that a kind of index uses: elsewhere a nested model of the program may have such a name."""
_OF_FILES: Final[Mapping[str, str]] = {"Blob": "Blob", "None": "None"}
_SEALED: Final = "encrypted["
_KEYS: Final = "# Encrypted fields are read with their keys: keys=KeyRing({1: key})."
_ON_DELETE: Final[Mapping[str, str]] = {"cascade": "CASCADE", "set_null": "SET_NULL"}
MSGPACK: Final = "msgpack"
_CONTAINERS: Final = frozenset(("list", "set", "frozenset", "dict", "tuple"))


def model_source(
    collections: Sequence[CollectionDescription],
    indexes: Sequence[IndexStatus],
    url: str | None = None,
    codec: str = MSGPACK,
) -> str:
    """Return a module with a class for each collection, all of them in ``MODELS``, and the database ``db``.

    Args:
        collections: the collections of the store.
        indexes: its indexes.
        url: what the database is opened with, without credentials; None leaves ``db`` out.
        codec: the codec of the store.
    """
    declarable = [one for one in collections if all(_is_field_name(column.name) for column in one.primary_key)]
    groups = _with_declarations(index.index for index in indexes)
    names = _class_names([one.name for one in declarable], groups)
    classes = [
        "\n".join(_class(one, names, [index for index in indexes if index.collection == one.name]))
        for one in declarable
    ]
    last = [f"# the collection {one.name!r} cannot be declared" for one in collections if one not in declarable]
    last.append(f"MODELS = [{', '.join(names[one.name] for one in declarable)}]")
    if url is not None:
        last += [_KEYS] * any(_plain_type(stored) is not None for one in declarable for stored in one.fields.values())
        last.append(f"db = AsyncDatabase({url!r}, models=MODELS{'' if codec == MSGPACK else f', codec={codec!r}'})")
    body = "\n\n\n".join([*classes, "\n".join(last)])
    head = "\n\n".join([_TITLE, *_imports(body, groups)])
    return f"{head}\n\n\n{body}"


def _with_declarations(indexes: Iterable[IndexDescription]) -> list[Mapping[str, tuple[str, ...]]]:
    """Return ``_IMPORTS`` with the classes that declare indexes, which a kind names, not the catalogue."""
    *others, last = _IMPORTS
    found: dict[str, tuple[str, ...]] = {**last}
    for path in sorted({index.declaration for index in indexes if index.declaration is not None}):
        module, _, name = path.rpartition(".")
        found[module] = tuple(sorted({*found.get(module, ()), name}, key=_import_order))
    return [*others, found]


def _import_order(name: str) -> tuple[bool, str]:
    return not (name.isupper() and len(name) > 1), name  # constants first


def _imports(body: str, groups: Sequence[Mapping[str, tuple[str, ...]]]) -> Iterator[str]:
    """Yield the groups of import statements that the rest of a module needs."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    for group in groups:
        lines = [line for module, names in group.items() for line in _import(module, names, used)]
        if lines:
            yield "\n".join(lines)


def _import(module: str, names: Sequence[str], used: Collection[str]) -> Iterator[str]:
    needed = ", ".join(name for name in names if name in used)
    if needed:
        yield f"from {module} import {needed}"
    elif not names and module in used:
        yield f"import {module}"


def _class_names(collections: Iterable[str], groups: Sequence[Mapping[str, tuple[str, ...]]]) -> dict[str, str]:
    """Return a class name for each collection: ``order_lines`` is ``OrderLines``."""
    own = {"MODELS", "db", *(name for group in groups for one in group.items() for name in (one[0], *one[1]))}
    found: dict[str, str] = {}
    for collection in collections:
        name = "".join(word[:1].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", collection))
        name = name if name[:1].isalpha() and not iskeyword(name) else f"Collection{name}"
        taken = {*found.values(), *own}
        found[collection] = next(one for one in _numbered(name) if one not in taken)
    return found


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}{number}" for number in count(2))


def _class(one: CollectionDescription, names: Mapping[str, str], indexes: Sequence[IndexStatus]) -> Iterator[str]:
    fields = {name for name in (*one.fields, *(column.name for column in one.primary_key)) if _is_field_name(name)}
    kept = [index.index for index in indexes if index.state not in (IndexState.DISABLED, IndexState.DROPPING)]
    named = [index for index in kept if index.kind != "unknown" and _names_only(index, fields)]
    blind = {name: _blind_keys(name, named) for name in fields}
    usable = list(_declared(named))
    types = {column.name: column for index in usable for column in index.columns if _is_plain(column)}
    keys = {index.columns[0].name: index for index in usable if index.references is not None}
    folded = {index.columns[0].name: index for index in reversed(usable) if _folds_field(index)}
    of_kinds = {name for index in usable for name in index.fields}
    yield f"class {names[one.name]}(KvModel, collection={one.name!r}):"
    for column in one.primary_key:
        declared = _TYPES.get(column.type, "Any")
        is_reference = column.name in keys and (keys[column.name].references or "") in names
        own = _foreign_key(keys[column.name], declared, names, "PrimaryKey()") if is_reference else ""
        yield f"    {column.name}: {own or f'PrimaryKey[{declared}]'}"
    for name, stored in one.fields.items():
        if name in {column.name for column in one.primary_key}:
            continue
        if name not in fields:
            yield f"    # the field {name!r} cannot be declared"
            continue
        known = _OF_FILES if name in one.blobs else _OF_KINDS if name in of_kinds else _TYPES
        plain = _plain_type(stored)
        if plain is not None:
            declared = _encrypted(_type(plain, _TYPES), blind[name])
        else:
            declared = _column_type(types[name]) if name in types else _type(stored, known)
        if name in keys:
            declared = _foreign_key(keys[name], declared, names)
        elif name in folded:
            declared = _folded(folded[name], declared)
        yield f"    {name}: {declared}"
    yield from (f"    # unknown to this release of kvmodels: {section!r}" for section in one.unknown)
    yield from (_not_declared(index) for index in kept if index not in named)
    yield from _meta(one, usable, folded)


def _is_field_name(name: str) -> bool:
    # A model refuses the names of its own attributes; a hidden field would be an attribute of pydantic.
    is_free = name not in VERB_KEYWORDS and not hasattr(KvModel, name) and name != "Meta"
    return is_source_name(name) and not name.startswith("_") and is_free


def _is_plain(column: ColumnDescription) -> bool:
    return not column.many and not column.computed and "." not in column.name


def _column_type(column: ColumnDescription) -> str:
    return _TYPES.get(column.type, "Any") + (" | None" if column.nullable else "")


def _type(stored: str, known: Mapping[str, str]) -> str:
    """Return the annotation for a type in the catalogue; nested models and everything unknown are Any."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.unparse(_known_type(ast.parse(stored, mode="eval").body, known))
    return "Any"


def _known_type(node: ast.expr, known: Mapping[str, str]) -> ast.expr:
    match node:
        case ast.Name(name):
            return ast.Name(known.get(name, "Any"), ast.Load())
        case ast.Constant(value) if value is None or value is ...:
            return node
        case ast.BinOp(left, ast.BitOr(), right):
            return ast.BinOp(_known_type(left, known), ast.BitOr(), _known_type(right, known))
        case ast.Subscript(ast.Name(container), items) if container in _CONTAINERS:
            return ast.Subscript(ast.Name(container, ast.Load()), _known_type(items, known), ast.Load())
        case ast.Tuple(items):
            return ast.Tuple([_known_type(item, known) for item in items], ast.Load())
        case _:
            return ast.Name("Any", ast.Load())


def _plain_type(stored: str) -> str | None:
    """Return the type of the plain values of an encrypted field; None for any other type."""
    is_encrypted = stored.startswith(_SEALED) and stored.endswith("]")
    return stored[len(_SEALED) : -1] if is_encrypted else None


def _blind_keys(field: str, indexes: Iterable[IndexDescription]) -> list[int]:
    """Return the ids of the keys of the blind indexes of a field, the highest first."""
    columns = [column for index in indexes for column in index.columns if column.name == field]
    return sorted({column.blind for column in columns if column.blind is not None}, reverse=True)


def _declared(indexes: Iterable[IndexDescription]) -> Iterator[IndexDescription]:
    """Yield indexes as they are declared: once for all keys of their blind values, which are part of a stored name."""
    seen: set[str] = set()
    for index in indexes:
        is_blind = any(column.blind is not None for column in index.columns)
        name = index.name.partition("~")[0] if is_blind else index.name
        if name not in seen:
            yield replace(index, name=name)
        seen.add(name)


def _encrypted(declared: str, keys: Sequence[int]) -> str:
    if keys in ([], [1]):
        return f"Encrypted[{declared}]"
    given = {"index_key": keys[0] if len(keys) == 1 else tuple(keys)}
    return f"Annotated[{declared}, {declaration_text('Encrypted', (), given)}]"


def _foreign_key(index: IndexDescription, declared: str, names: Mapping[str, str], *others: str) -> str:
    target = names.get(index.references or "")
    if target is None:
        return declared
    key = f'ForeignKey[{declared}, "{target}"]'
    action = _ON_DELETE.get(index.on_delete or "")
    marks = [*others, *([action] if action is not None else [])]
    marks += [declaration_text("Unique", (), {"name": index.name, "nulls": index.nulls})] if index.unique else []
    return f"Annotated[{', '.join([key, *marks])}]" if marks else key


def _folds_field(index: IndexDescription) -> bool:
    """Return whether an index can be declared at its field, which it folds by casefold, lower or upper."""
    if not index.sorts or len(index.columns) != 1:
        return False
    first = index.columns[0]
    # Only Indexed() has an option for descending order.
    return first.fold is not None and not (first.descending and (index.unique or first.many))


def _folded(index: IndexDescription, declared: str) -> str:
    first = index.columns[0]
    options: dict[str, object] = {"key": _Code(f"str.{first.fold}"), "name": index.name}
    options |= {"descending": True} if first.descending else {}
    marker = "MultiIndexed" if first.many else "Unique" if index.unique else "Indexed"
    return f"Annotated[{declared}, {declaration_text(marker, (), options | _common_options(index))}]"


def _meta(
    one: CollectionDescription, indexes: Sequence[IndexDescription], folded: Mapping[str, IndexDescription]
) -> Iterator[str]:
    declared = [index for index in indexes if index.references is None and index not in folded.values()]
    expressible = [index for index in declared if _is_expressible(index, one, folded)]
    for index in declared:
        if index not in expressible:
            yield _not_declared(index)
    kept = None if one.history is None or one.history.state == "dropping" else one.history
    history = None if kept is None else _history(kept)
    if kept is not None and history is None:
        yield f"    # not declared here: the history, without {visible(', '.join(kept.exclude), kept='')}"
    if not expressible and one.schema_version == 1 and history is None:
        return
    yield ""
    yield "    class Meta:"
    if one.schema_version != 1:
        yield f"        schema_version = {one.schema_version}"
    if history is not None:
        yield f"        history = {history}"
    if expressible:
        yield "        indexes = ("
        yield from (f"            {_declaration(index)}," for index in expressible)
        yield "        )"


def _history(history: HistoryDescription) -> str | None:
    """Return the declaration of a history; None if it excludes fields, which need the defaults of the program."""
    keep = history.keep_seconds
    if history.exclude:
        return None
    options: dict[str, object] = {} if keep is None else {"keep": _Code(f"datetime.timedelta(seconds={keep!r})")}
    options |= {"only": history.only} if history.only is not None else {}
    return declaration_text("History", (), options)


def _not_declared(index: IndexDescription) -> str:
    return f"    # not declared here: {visible(str(index), kept='')}"


def _is_expressible(index: IndexDescription, one: CollectionDescription, folded: Collection[str]) -> bool:
    columns = all("." not in column.name and _is_of_field(column, folded) for column in index.columns)
    typed = all(column.type in _TYPES for column in index.columns)
    return columns and typed and index.declaration is not None and all(_is_known(one, name) for name in index.fields)


def _is_of_field(column: ColumnDescription, folded: Collection[str]) -> bool:
    """Return whether a column has the values of a field as it is printed: plain, folded or blind ones."""
    is_folded = column.name in folded
    if column.blind is not None:
        return is_folded == (column.fold is not None)
    return not column.computed or (is_folded and column.fold is not None)


def _is_known(one: CollectionDescription, field: str) -> bool:
    """Return whether a field that a kind of index uses is printed with its own type."""
    return field in one.fields and "Any" not in _type(one.fields[field], _OF_KINDS)


def _names_only(index: IndexDescription, fields: Collection[str]) -> bool:
    """Return whether an index is of these fields, apart from computed columns, and has a condition with operands."""
    named = [column.name.partition(".")[0] for column in index.columns if not column.computed]
    named += [*index.included, *index.sums, *(name.partition(".")[0] for name in index.fields)]
    condition = ast.parse(index.condition or "None", mode="eval")
    lookups = [node.arg for node in ast.walk(condition) if isinstance(node, ast.keyword)]
    named += ["" if lookup is None else lookup.partition("__")[0] for lookup in lookups]
    unknown = any(isinstance(node, ast.Constant) and node.value is ... for node in ast.walk(condition))
    return not unknown and all(name in fields for name in named)


def _declaration(index: IndexDescription) -> str:
    columns = index.names[len(index.group) : len(index.columns)]
    group = {"group": index.group} if index.group else {}
    options = {**group, "name": index.name, **index.options, **_common_options(index)}
    return declaration_text((index.declaration or "").rpartition(".")[2], index.fields or columns, options)


def _common_options(index: IndexDescription) -> dict[str, object]:
    """Return the options that declarations at a field and in ``Meta`` share."""
    options: dict[str, object] = {"nulls": index.nulls} if index.nulls != "distinct" else {}
    options |= {"store": "record"} if index.stores_record else {}
    options |= {"include": index.included} if index.included else {}
    return options | ({"where": _Code(index.condition)} if index.condition is not None else {})


class _Code(str):
    """The source text of a value that is no literal."""

    __slots__ = ()
    __repr__ = str.__str__
