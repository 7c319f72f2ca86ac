"""The indexes declared in ``Meta``: Index, UniqueConstraint and AggregateIndex; and the options that they share.

Rules of this module: declarations are immutable and compared by their options. Only a declaration that is invalid by
itself is refused here; ``schema/compile/indexes.py`` checks it against the fields of its model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Never, cast, get_args

from kvmodels._support import suggest as spelling
from kvmodels._support.annotations import signature_of
from kvmodels._support.naming import short_repr, show_public_path
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.expressions import Expression

KeyFunction = Callable[..., Any]
Nulls = Literal["distinct", "skip", "equal"]
Store = Literal["record"]
OnDeleteAction = Literal["protect", "cascade", "set_null"]

MAX_FAN_OUT: Final = 1_000
"""The default maximum number of entries of one record in one index."""

MOST_PLACES: Final = 18
"""The most decimal places of a sum: 10 ** 18 is still below 2 ** 63, the limit of a summed value."""

FOLDS: Final[dict[Any, str]] = {str.casefold: "casefold", str.lower: "lower", str.upper: "upper"}
"""Functions that never change, so they need no version, with the text that replaces it."""


def declaration_text(declared: str, fields: Iterable[str], options: Mapping[str, object]) -> str:
    """Return a declaration as source text.

    Examples:
        >>> declaration_text("Index", ["city", "-age"], {"name": "by_city"})
        "Index('city', '-age', name='by_city')"
    """
    given = (f"{name}={value!r}" for name, value in options.items())
    return f"{declared}({', '.join([*map(repr, fields), *given])})"


class Declaration:
    """Base class of markers and of the indexes in ``Meta``, which are compared by their options."""

    _shown: ClassVar[tuple[str, ...]] = ()
    """Options that ``repr`` always shows; it shows the others only if they were given."""

    def __repr__(self) -> str:
        options = dict(vars(self))
        fields = options.pop("fields", ())
        shown = {name: options.pop(name) for name in self._shown}
        # By identity: an expression in the place of an option refuses to be compared by ==.
        shown |= {name: value for name, value in options.items() if not any(value is one for one in (None, False, ()))}
        return declaration_text(type(self).__name__, fields, shown)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def _refuse_unknown(self, unknown: Iterable[str]) -> None:
        kind = type(self)
        for name in unknown:
            known = [one for one in signature_of(kind.__init__).parameters if one not in ("self", "fields", "unknown")]
            close = spelling.closest(name, known)
            raise ModelDefinitionError(
                "an index option does not exist",
                option=f"{kind.__name__}({name}=)",
                suggestion=close,
                hint=f"Its options are {', '.join(known)}." if known else "It takes no options.",
            )

    def _names(self, option: str, names: Any) -> tuple[str, ...]:
        """Return the names in an option as a tuple; refuse other items, and a repeated name."""
        listed: list[Any] = list(cast("list[Any]", names)) if isinstance(names, (tuple, list)) else [None]
        if not all(isinstance(name, str) for name in listed) or len(set(listed)) < len(listed):
            raise self._error(
                "an index option is not a tuple of distinct field names",
                f"{option}={short_repr(cast('object', names))}",
                f'Write {option}=("name",), with the comma.',
            )
        return tuple(listed)

    def _condition(self, where: Any) -> Expression | None:
        if where is None or isinstance(where, Expression):
            return where
        raise self._error(
            "the condition of an index is not an expression",
            f"where={short_repr(where)}",
            'Write where=Q(plan="pro").',
        )

    def _fan_out(self, most: Any) -> int | None:
        if most is None or (type(most) is int and most >= 1):
            return most
        hint = f"max_fan_out is a whole number from 1 on; {MAX_FAN_OUT} unless given."
        raise self._invalid("max_fan_out", most, hint)

    def _invalid(self, option: str, value: object, hint: str) -> ModelDefinitionError:
        return self._error("an index option has a value that it does not take", f"{option}={short_repr(value)}", hint)

    def _useless(self, option: str, hint: str) -> ModelDefinitionError:
        return self._error("an index option has no effect here", f"{option}=", hint)

    def _error(self, message: str, options: str, hint: str) -> ModelDefinitionError:
        return ModelDefinitionError(message, option=f"{type(self).__name__}({options})", hint=hint)


class EntryDeclaration(Declaration):
    """Base class of the declarations of an index with entries, with their common options."""

    _shown = ("name", "nulls", "store")
    _nulls: ClassVar[tuple[str, ...]] = ("distinct", "skip")
    """The possible values of ``nulls``."""

    name: str | None
    nulls: Nulls
    store: Store | None
    key: KeyFunction | None
    version: int | None
    where: Expression | None
    include: tuple[str, ...]

    def _keep(self, name: str | None, nulls: Nulls, store: Store | None, include: Sequence[str]) -> None:
        if nulls not in self._nulls:
            raise self._invalid("nulls", nulls, f"nulls is one of {', '.join(self._nulls)}.")
        if store not in (None, *get_args(Store)):
            raise self._invalid("store", store, 'store is "record" or None.')
        self.include = self._names("include", include)
        if self.include and store is not None:
            raise self._error(
                "an index includes fields and stores the whole record",
                f"include={short_repr(self.include)}",
                "Leave out include= or store=: a copy of the record holds every field.",
            )
        self.name = name
        self.nulls = nulls
        self.store = store

    def _choose(self, key: KeyFunction | None, version: int | None, where: Expression | None) -> None:
        if key is None:
            if version is not None:
                raise self._useless("version", "It counts the changes of key=: give key= as well.")
        elif not callable(key):
            raise self._error(
                "the key of an index cannot be called",
                f"key={short_repr(key)}",
                "Give a function: key=str.casefold, or key=initial, version=1.",
            )
        elif fold_of(key) is not None:
            if version is not None:
                raise self._useless("version", "This function never changes, so it has no version: leave it out.")
        elif version is None:
            raise self._error(
                "the key of an index has no version",
                f"key={getattr(key, '__name__', None) or short_repr(key)}",
                "Write version=1, and increase it whenever the function gives other results: then stored values are "
                "computed again.",
            )
        elif type(version) is not int or version < 1:
            raise self._invalid("version", version, "version is a whole number from 1 on.")
        self.key = key
        self.version = version
        self.where = self._condition(where)


class DeclaredIndex(Declaration):
    """Base class of the declarations in ``Meta.indexes``; ``kind`` is the name of the kind in the tables of kinds."""

    kind: ClassVar[str] = "entries"

    fields: tuple[str, ...]
    name: str | None
    where: Expression | None
    max_fan_out: int | None
    group: tuple[str, ...]

    def _declare(self, fields: tuple[Any, ...], max_fan_out: int | None, *, least: int = 1) -> None:
        kind = type(self).__name__
        if len(fields) < least or not all(isinstance(field, str) for field in fields):
            raise ModelDefinitionError(
                "an index needs the names of one or more fields",
                option=kind,
                hint=f'Write {kind}("country", "elevation").',
            )
        self.fields = fields
        self._refuse_repeated(fields)
        self.max_fan_out = self._fan_out(max_fan_out)

    def _declare_grouped(
        self,
        fields: tuple[Any, ...],
        group: str | Sequence[str],
        name: str | None,
        where: Expression | None,
        max_fan_out: int | None = None,
    ) -> None:
        """Keep the options that every kind with a group has."""
        self._declare(fields, max_fan_out)
        self.name = name
        self.group = self._group(group)
        self.where = self._condition(where)

    def _group(self, group: str | Sequence[str]) -> tuple[str, ...]:
        """Return the fields in an option ``group``; to be called after ``_declare``.

        Raises ModelDefinitionError: a name with a direction, a repeated one, or one that ``fields`` has.
        """
        names = self._names("group", (group,) if isinstance(group, str) else group)
        self._refuse_directions(names)
        self._refuse_repeated((*self.fields, *names))
        return names

    def _refuse_directions(self, names: Iterable[str]) -> None:
        for field in names:
            if field.startswith("-"):
                raise ModelDefinitionError(
                    "the fields of this index have no direction",
                    option=type(self).__name__,
                    field=field,
                    hint="Leave out the leading -.",
                )

    def _refuse_repeated(self, fields: Iterable[str]) -> None:
        names = [field.removeprefix("-") for field in fields]
        for field in names:
            if names.count(field) > 1:
                raise ModelDefinitionError(
                    "an index names a field twice",
                    option=type(self).__name__,
                    field=field,
                    hint="Name each field once.",
                )


class Index(EntryDeclaration, DeclaredIndex):
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
        self._refuse_unknown(unknown)
        self._declare(fields, max_fan_out)
        self._keep(name, nulls, store, include)
        self._compute(key, version, where, returns)

    def _compute(self, key: KeyFunction | None, version: int | None, where: Expression | None, returns: Any) -> None:
        self._choose(key, version, where)
        if returns is not None and key is None:
            raise self._useless("returns", "It says what key= returns: give key= as well.")
        self.returns = returns


class UniqueConstraint(Index):
    """A unique index: no two records have the same combination of values; see ``Index`` and ``Unique``.

    On a field with several values, no two records share an element. With ``where=``, only records that satisfy the
    condition are compared.

    Examples:
        >>> UniqueConstraint("org", "slug").unique
        True
    """

    unique = True
    _nulls = get_args(Nulls)

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
        self._refuse_unknown(unknown)
        self._declare(fields, max_fan_out)
        self._keep(name, nulls, store, include)
        self._compute(key, version, where, returns)


class AggregateIndex(DeclaredIndex):
    """Counters for each group of records, updated by every write: the number of records, and sums of fields.

    ``count()``, ``aggregate()`` and ``group_by()`` read one counter instead of the records of a group. Writers of one
    group do not conflict, because counters are changed by commutative sums.

    Args:
        fields: the columns that define a group, as for ``Index`` but without direction; without any, all records are
            one group.
        sums: fields of type int or timedelta, optionally None, whose sums are kept. A dict also takes fields of type
            Decimal, with the number of decimal places that their values may have: ``{"price": 2, "items": None}``.
        name: name of the index; by default the names of the columns joined by ``_``, and ``_totals``.
        where: a condition; only records that satisfy it are counted.
        max_fan_out: the maximum number of groups of one record; 1,000 by default.

    Raises:
        ModelDefinitionError: a repeated field, or an invalid option.

    Examples:
        >>> AggregateIndex("country", sums=("population",))
        AggregateIndex('country', name=None, sums=('population',))
    """

    kind = "counters"
    _shown = ("name", "sums")

    def __init__(
        self,
        *fields: str,
        sums: Sequence[str] | Mapping[str, int | None] = (),
        name: str | None = None,
        where: Expression | None = None,
        max_fan_out: int | None = None,
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        self._declare(fields, max_fan_out, least=0)
        self._refuse_directions(fields)
        self.sums = self._sums(sums)
        self.name = name
        self.where = self._condition(where)

    def _sums(self, sums: Sequence[str] | Mapping[str, int | None]) -> tuple[str, ...] | dict[str, int | None]:
        """Return the summed fields, with their decimal places if any were given."""
        if not isinstance(sums, Mapping):
            return self._names("sums", sums)
        for places in sums.values():
            if places is not None and (type(places) is not int or not 0 <= places <= MOST_PLACES):
                raise self._error(
                    "the decimal places of a sum are out of range",
                    f"sums={short_repr(sums)}",
                    f'Give a number from 0 to {MOST_PLACES}: sums={{"price": 2}}; None for an int or a timedelta.',
                )
        return {name: sums[name] for name in self._names("sums", tuple(sums))}


def fold_of(key: Any) -> str | None:
    """Return the text that replaces the version of a function that never changes; None for any other function."""
    return next((name for function, name in FOLDS.items() if function is key), None)


show_public_path(AggregateIndex, Index, UniqueConstraint)
