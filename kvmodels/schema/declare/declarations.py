"""The indexes declared in ``Meta``: Index, UniqueConstraint and AggregateIndex; and the options that they share.

Rules of this module: declarations are immutable and compared by their options. Only a declaration that is invalid by
itself is refused here; ``schema/compile/indexes.py`` checks it against the fields of its model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, ClassVar, Final, Literal, Never, cast, get_args

from kvmodels._support import suggest as spelling
from kvmodels._support.naming import short_repr
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.expressions import Expression

KeyFunction = Callable[..., Any]
Nulls = Literal["distinct", "skip", "equal"]
Store = Literal["record"]
OnDeleteAction = Literal["protect", "cascade", "set_null"]

MAX_FAN_OUT: Final = 1_000
"""The default maximum number of entries of one record in one index."""

FOLDS: Final[dict[Any, str]] = {str.casefold: "casefold", str.lower: "lower", str.upper: "upper"}
"""Functions that never change, so they need no version, with the text that replaces it."""


class DeclaredIndex:
    """Base of the declarations in ``Meta.indexes``."""

    __slots__ = ("fields", "max_fan_out", "name", "where")

    _shown: ClassVar[tuple[str, ...]] = ("name",)
    """Options that ``repr`` always shows; it shows the others only if they were given."""

    fields: tuple[str, ...]
    name: str | None
    where: Expression | None
    max_fan_out: int | None

    def __repr__(self) -> str:
        options = [f"{name}={value!r}" for name, value in described(self, self._shown)]
        return f"{type(self).__name__}({', '.join([*map(repr, self.fields), *options])})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class Index(DeclaredIndex):
    """An index over one or more columns, for ``class Meta: indexes = (Index("country", "-elevation"),)``.

    Args:
        fields: columns in order, each the name of a field, a path through nested models (``"address.city"``) or the
            name of a computed column; a leading ``-`` sorts it in descending order. One of them may have several values
            (a list, set, frozenset or ``tuple[T, ...]``); a record then has one entry for each value.
        name: name of the index; by default the names of the columns joined by ``_``.
        nulls: as for ``Indexed``; ``"skip"`` keeps no entry if any of the fields is None.
        store: as for ``Indexed``.
        key: computes ONE column, named ``name``, from the values of all fields: ``filter(name=...)`` compares the
            result of ``key``. If one of the values is None, ``key`` is not called and the column is None.
        version: a whole number from 1 on; increase it whenever ``key`` gives other results. Not for ``str.casefold``,
            ``str.lower`` and ``str.upper``.
        returns: the return type of ``key``, if its annotation does not state it; with ``list[T]`` the column has
            several values.
        where: a condition such as ``Q(deleted=False)``; only records that satisfy it have entries.
        include: fields whose values are copied into each entry, so that they can be read without the record.
        max_fan_out: the maximum number of entries of one record; 1,000 by default.

    Raises:
        ModelDefinitionError: no field, a repeated field, or an invalid option.

    Examples:
        >>> Index("country", "-elevation")
        Index('country', '-elevation', name=None, nulls='distinct', store=None)
        >>> Index("name", key=str.casefold, name="folded").key("STRASSE")
        'strasse'
    """

    __slots__ = ("include", "key", "nulls", "returns", "store", "version")

    _shown = ("name", "nulls", "store")

    unique: ClassVar[bool] = False

    def __init__(
        self,
        *fields: str,
        name: str | None = None,
        nulls: Literal["distinct", "skip"] = "distinct",
        store: Store | None = None,
        key: KeyFunction | None = None,
        version: int | None = None,
        returns: Any = None,
        where: Expression | None = None,
        include: Sequence[str] = (),
        max_fan_out: int | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(Index, unknown)
        self._declare(fields, name, where, max_fan_out)
        self._keep(nulls, store, include)
        self._compute(key, version, returns)

    def _declare(
        self, fields: tuple[str, ...], name: str | None, where: Expression | None, max_fan_out: int | None
    ) -> None:
        kind = type(self).__name__
        check_columns(kind, fields)
        check_condition(kind, where)
        check_fan_out(kind, max_fan_out)
        self.fields = fields
        self.name = name
        self.where = where
        self.max_fan_out = max_fan_out

    def _keep(self, nulls: Nulls, store: Store | None, include: Sequence[str]) -> None:
        allowed = get_args(Nulls) if self.unique else ("distinct", "skip")
        self.include = check_entries(type(self).__name__, nulls, store, include, allowed)
        self.nulls: Nulls = nulls
        self.store: Store | None = store

    def _compute(self, key: KeyFunction | None, version: int | None, returns: Any) -> None:
        kind = type(self).__name__
        check_function(kind, key, version)
        if returns is not None and key is None:
            raise _useless(kind, "returns", "It says what key= returns: give key= as well.")
        self.key = key
        self.version = version
        self.returns = returns


class UniqueConstraint(Index):
    """A unique index: no two records have the same combination of values; see ``Index`` and ``Unique``.

    On a field with several values, no two records share an element. With ``where=``, only records that satisfy the
    condition are compared.

    Examples:
        >>> UniqueConstraint("org", "slug").unique
        True
    """

    __slots__ = ()

    unique = True

    def __init__(
        self,
        *fields: str,
        name: str | None = None,
        nulls: Nulls = "distinct",
        store: Store | None = None,
        key: KeyFunction | None = None,
        version: int | None = None,
        returns: Any = None,
        where: Expression | None = None,
        include: Sequence[str] = (),
        max_fan_out: int | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(UniqueConstraint, unknown)
        self._declare(fields, name, where, max_fan_out)
        self._keep(nulls, store, include)
        self._compute(key, version, returns)


class AggregateIndex(DeclaredIndex):
    """Counters for each group of records, updated by every write: the number of records, and sums of fields.

    ``count()``, ``aggregate()`` and ``group_by()`` read one counter instead of the records of a group. Writers of one
    group do not conflict, because counters are changed by commutative sums.

    Args:
        fields: the columns that define a group, as for ``Index`` but without direction; without any, all records are
            one group.
        sums: fields of type int or timedelta, optionally None, whose sums are kept.
        name: name of the index; by default the names of the columns joined by ``_``, and ``_totals``.
        where: a condition; only records that satisfy it are counted.
        max_fan_out: the maximum number of groups of one record; 1,000 by default.

    Raises:
        ModelDefinitionError: a repeated field, or an invalid option.

    Examples:
        >>> AggregateIndex("country", sums=("population",))
        AggregateIndex('country', name=None, sums=('population',))
    """

    __slots__ = ("sums",)

    _shown = ("name", "sums")

    def __init__(
        self,
        *fields: str,
        sums: Sequence[str] = (),
        name: str | None = None,
        where: Expression | None = None,
        max_fan_out: int | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(AggregateIndex, unknown)
        kind = AggregateIndex.__name__
        check_columns(kind, fields or ("group",))
        for field in fields:
            if field.startswith("-"):
                raise ModelDefinitionError(
                    "the columns of an aggregate index have no direction",
                    option=kind,
                    field=field,
                    hint="Leave out the leading -.",
                )
        check_condition(kind, where)
        check_fan_out(kind, max_fan_out)
        self.fields = fields
        self.sums = check_names(kind, "sums", sums)
        self.name = name
        self.where = where
        self.max_fan_out = max_fan_out


def described(declaration: Any, always: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Return options of a declaration for ``repr``: those in ``always``, then the others that were given."""
    slots = [name for cls in reversed(type(declaration).__mro__) for name in getattr(cls, "__slots__", ())]
    others = [name for name in slots if name not in always and name != "fields"]
    given = [name for name in others if not any(getattr(declaration, name) is nothing for nothing in (None, False, ()))]
    return [(name, getattr(declaration, name)) for name in (*always, *given)]


def refuse_unknown(kind: type[Any], unknown: dict[str, Any]) -> None:
    """Raise ModelDefinitionError for unknown options of a declaration; the error suggests a similar name."""
    for name in unknown:
        known = [
            option for option in signature(kind.__init__).parameters if option not in ("self", "fields", "unknown")
        ]
        close = spelling.get_close_matches(name, known, 1)
        raise ModelDefinitionError(
            "an index option does not exist",
            option=f"{kind.__name__}({name}=)",
            suggestion=close[0] if close else None,
            hint=f"Its options are {', '.join(known)}." if known else "It takes no options.",
        )


def check_columns(kind: str, fields: tuple[Any, ...]) -> None:
    """Refuse columns that are not names, and repeated columns."""
    if not fields or not all(isinstance(field, str) for field in fields):
        raise ModelDefinitionError(
            "an index needs the names of one or more fields",
            option=kind,
            hint=f'Write {kind}("country", "elevation").',
        )
    names = [field.removeprefix("-") for field in fields]
    for field in names:
        if names.count(field) > 1:
            raise ModelDefinitionError(
                "an index names a field twice", option=kind, field=field, hint="Name each field once."
            )


def check_names(kind: str, option: str, names: Any) -> tuple[str, ...]:
    """Return the names in an option as a tuple. Raises ModelDefinitionError for other items, or a repeated name."""
    listed: list[Any] = list(cast("list[Any]", names)) if isinstance(names, (tuple, list)) else [None]
    if not all(isinstance(name, str) for name in listed) or len(set(listed)) < len(listed):
        raise ModelDefinitionError(
            "an index option is not a tuple of distinct field names",
            option=f"{kind}({option}={short_repr(cast('object', names))})",
            hint=f'Write {option}=("name",), with the comma.',
        )
    return tuple(listed)


def check_condition(kind: str, where: Any) -> None:
    """Refuse a condition that is not an expression."""
    if where is not None and not isinstance(where, Expression):
        raise ModelDefinitionError(
            "the condition of an index is not an expression",
            option=f"{kind}(where={short_repr(where)})",
            hint='Write where=Q(plan="pro").',
        )


def check_fan_out(kind: str, max_fan_out: Any) -> None:
    """Refuse a maximum number of entries that is not a whole number from 1 on."""
    if max_fan_out is not None and (type(max_fan_out) is not int or max_fan_out < 1):
        raise _invalid(
            kind, "max_fan_out", max_fan_out, f"max_fan_out is a whole number from 1 on; {MAX_FAN_OUT} unless given."
        )


def check_flag(kind: str, option: str, value: Any) -> bool:
    """Return an option that is True or False. Raises ModelDefinitionError for other values."""
    if value is not True and value is not False:
        raise _invalid(kind, option, value, f"{option} is True or False.")
    return value


def check_entries(kind: str, nulls: Any, store: Any, include: Any, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse invalid entry options, or two that exclude each other; return the included fields."""
    if nulls not in allowed:
        raise _invalid(kind, "nulls", nulls, f"nulls is one of {', '.join(allowed)}.")
    if store not in (None, *get_args(Store)):
        raise _invalid(kind, "store", store, 'store is "record" or None.')
    names = check_names(kind, "include", include)
    if names and store is not None:
        raise ModelDefinitionError(
            "an index includes fields and stores the whole record",
            option=f"{kind}(include={short_repr(names)})",
            hint="Leave out include= or store=: a copy of the record holds every field.",
        )
    return names


def check_function(kind: str, key: Any, version: Any) -> None:
    """Refuse a function without a version, a version without a function, and values of other types."""
    if key is None:
        if version is not None:
            raise _useless(kind, "version", "It counts the changes of key=: give key= as well.")
        return
    if not callable(key):
        raise ModelDefinitionError(
            "the key of an index cannot be called",
            option=f"{kind}(key={short_repr(key)})",
            hint="Give a function: key=str.casefold, or key=initial, version=1.",
        )
    if fold_of(key) is not None:
        if version is not None:
            raise _useless(kind, "version", "This function never changes, so it has no version: leave it out.")
    elif version is None:
        raise ModelDefinitionError(
            "the key of an index has no version",
            option=f"{kind}(key={getattr(key, '__name__', None) or short_repr(key)})",
            hint="Write version=1, and increase it whenever the function gives other results: then stored values are "
            "computed again.",
        )
    elif type(version) is not int or version < 1:
        raise _invalid(kind, "version", version, "version is a whole number from 1 on.")


def fold_of(key: Any) -> str | None:
    """Return the text that replaces the version of a function that never changes; None for any other function."""
    return next((name for function, name in FOLDS.items() if function is key), None)


def _invalid(kind: str, option: str, value: object, hint: str) -> ModelDefinitionError:
    return ModelDefinitionError(
        "an index option has a value that it does not take", option=f"{kind}({option}={short_repr(value)})", hint=hint
    )


def _useless(kind: str, option: str, hint: str) -> ModelDefinitionError:
    return ModelDefinitionError("an index option has no effect here", option=f"{kind}({option}=)", hint=hint)
