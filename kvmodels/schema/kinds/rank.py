"""The index of ranks: its declaration, and its options.

Its columns are those of the group, then the ranked one, so entries are those of a plain index on these columns. The
counters of a group divide its entries into buckets of values.

Rules of this module: pure. ``low`` and ``high`` determine only which bucket a value is in, never whether it has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar, Final, Never

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.registry import column_codec_named
from kvmodels.errors import InvalidValueError
from kvmodels.schema.declare.declarations import DeclaredIndex
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.definition.definition import Column, ColumnSource, IndexDefinition, KindOptions
from kvmodels.schema.definition.kinds import ColumnsOf, DeclaringModel, KindDefinition, KindDescription
from kvmodels.schema.kinds.rank_buckets import BASE, MAX_LEVELS, RANKED_TYPES, RankedType, RankScale

LEVELS: Final = 4
"""The levels of counters of an index that is declared without them."""

_TYPES: Final = "int, float, Decimal, date, datetime or timedelta"


class RankIndex(DeclaredIndex):
    """An index of ranks: which place a value has, and which record has a place, exactly and without a scan.

    ``repository.rank("board", league="gold")`` returns the board of one group, with ``rank``, ``rank_of``,
    ``position_of``, records by position, percentiles and counts. Writers of different records never conflict. The index
    also serves conditions and orders as a plain index on its group and its field does.

    Args:
        fields: the ranked field, a leading ``-`` if the greatest value is the first; of type int, float, Decimal, date,
            datetime with a time zone, or timedelta. A record whose field is None is on no board.
        low, high: the bounds between which most values are. They affect the speed alone: values outside are ranked as
            exactly.
        group: the field, or fields, whose values have a board of their own, such as ``"league"``.
        levels: the levels of counters, 1 to 6. Each one divides the values between ``low`` and ``high`` 16 times finer,
            and adds a counter to each write.
        name: name of the index and of its boards; by default the names of group and field, joined by ``_``.
        where: a condition; only records that satisfy it are on a board.

    Raises:
        ModelDefinitionError: not one field, a repeated field, or an invalid option.

    Examples:
        >>> RankIndex("-score", group="league", low=0, high=100_000, name="board")
        RankIndex('-score', name='board', group=('league',), low=0, high=100000, levels=4)
    """

    kind = "rank"
    _shown = ("name", "group", "low", "high")

    def __init__(
        self,
        *fields: str,
        low: Any,
        high: Any,
        group: str | Sequence[str] = (),
        levels: int = LEVELS,
        name: str | None = None,
        where: Expression | None = None,
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        self._declare_grouped(fields, group, name, where)
        self.low = low
        self.high = high
        self.levels = levels
        if len(fields) != 1:
            raise self._error(
                "an index of ranks has one field",
                ", ".join(map(repr, fields)),
                'Name the field with the ranked values, and put others into the group: RankIndex("-score", '
                'group="league", low=0, high=100_000).',
            )
        if type(levels) is not int or not 1 <= levels <= MAX_LEVELS:
            raise self._invalid("levels", levels, f"levels is a whole number from 1 to {MAX_LEVELS}.")


@dataclass(frozen=True, slots=True)
class RankOptions(KindOptions):
    """The bounds of the buckets as texts, and the number of levels of counters."""

    kind = "rank"
    has_counters = True
    sorted_columns = 1

    low: str
    high: str
    levels: int

    def stored(self) -> dict[str, Any]:
        """Return the bounds and the levels. Texts, because codecs of JavaScript have no whole floats."""
        return {"low": self.low, "high": self.high, "levels": self.levels}

    def counter_name(self, parts: tuple[Any, ...]) -> str:
        """Return the digits of a bucket."""
        level, digits = parts
        return f"{digits:0{level}x}"

    def is_bucket(self, parts: tuple[Any, ...]) -> bool:
        """Return whether a counter is of the last level."""
        return bool(parts[0] == self.levels)


def options_of(definition: IndexDefinition) -> RankOptions:
    """Return the options of an index of ranks."""
    options = definition.options
    assert isinstance(options, RankOptions), "an index of another kind"
    return options


class Buckets:
    """The buckets of one index in the order of its entries, which may descend by the values."""

    def __init__(self, definition: IndexDefinition) -> None:
        options = options_of(definition)
        self.column = definition.columns[-1]
        self.levels = options.levels
        self.count: int = BASE**options.levels
        self._type, self._scale = scale_of(self.column.codec.name, options)
        self._descends = self.column.descending

    def bucket(self, value: Any) -> int:
        """Return the bucket of a value, counted in the order of entries."""
        bucket = self._scale.bucket(self._type.number(value))
        return self.count - 1 - bucket if self._descends else bucket

    def start(self, bucket: int) -> bytes:
        """Return the packed part that no entry of a bucket sorts before, and all those of earlier buckets do."""
        if bucket == 0:
            return b""
        if bucket == self.count:
            return b"\xff"
        ascending = self.count - bucket if self._descends else bucket
        value = self._type.value(self._scale.bound(ascending))
        # In a descending column the values from the bound on lie before the bucket.
        return self.column.codec.pack(value) + (b"\xff" if self._descends else b"")


def scale_of(codec: str, options: RankOptions) -> tuple[RankedType, RankScale]:
    """Return the buckets of options. Raises ValueError for bounds of another type, or that are none."""
    return _scale_of(codec, options.low, options.high, options.levels)


@lru_cache(maxsize=1_000)
def _scale_of(codec: str, low: str, high: str, levels: int) -> tuple[RankedType, RankScale]:
    ranked = RANKED_TYPES[codec]
    first, last = (ranked.number(ranked.parse(text)) for text in (low, high))
    count: int = BASE**levels
    return ranked, ranked.scale(first, last, count)


class RankKind(KindDefinition):
    """The definition of an index of ranks."""

    declaration: ClassVar[type[DeclaredIndex] | None] = RankIndex
    shown: ClassVar[str] = "rank"
    has_counters = True

    def column_names(self, declared: RankIndex) -> tuple[str, ...]:
        """Return the fields of the group, and the ranked one."""
        return (*declared.group, *declared.fields)

    def compile(
        self, declared: RankIndex, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        """Return the bounds of a declaration."""
        column = columns[-1]
        if model.schema.ttl_ms is not None:
            raise model.error(
                "a model whose records expire has an index of ranks",
                None,
                text,
                "A record that expires is taken out of no counter: remove Meta.ttl or the index.",
            )
        source = model.schema.source(column.field)
        if column.many or not _is_ranked(source):
            raise model.error(
                "values of this field have no ranks",
                column.field,
                text,
                f"The field is of type {_TYPES}, with one value or None. A datetime must have a time zone.",
            )
        name = column.codec.name
        bounds = [_bound(name, option, getattr(declared, option), text, model) for option in ("low", "high")]
        options = RankOptions(bounds[0], bounds[1], declared.levels)
        try:
            scale_of(name, options)
        except ValueError as error:
            raise model.error(
                f"the bounds of an index of ranks do not fit: {error}",
                column.field,
                text,
                "Give low and high between which most values are, low below high.",
            ) from error
        return {"options": options}

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> RankOptions:
        """Return the bounds in a signature."""
        (*_, ranked) = columns_of(stored["columns"])
        kept = stored["options"]
        options = RankOptions(kept["low"], kept["high"], kept["levels"])
        if type(options.levels) is not int or not 1 <= options.levels <= MAX_LEVELS or ranked.many:
            raise ValueError("unknown levels, or several values")
        scale_of(ranked.codec.name, options)
        return options

    def describe(self, index: IndexDefinition) -> KindDescription:
        """Return the description of an index, whose entries are sorted by its columns."""
        options = options_of(index)
        ranked, _ = scale_of(index.columns[-1].codec.name, options)
        given = {"low": ranked.parse(options.low), "high": ranked.parse(options.high)}
        levels = {} if options.levels == LEVELS else {"levels": options.levels}
        group = tuple(column.field for column in index.group)
        return KindDescription(self.shown, self.declaration, options={**given, **levels}, sorts=True, group=group)


def _is_ranked(source: ColumnSource | None) -> bool:
    if source is None or source.normalise is not None or source.codec.name not in RANKED_TYPES:
        return False
    plain = column_codec_named(source.codec.name)
    # An Enum has the codec of its values, but its members are no numbers.
    return plain is not None and source.codec.to_stored is plain.to_stored


def _bound(codec_name: str, option: str, value: Any, text: str, model: DeclaringModel) -> str:
    """Return a bound as text, or raise for one of another type."""
    ranked, codec = RANKED_TYPES[codec_name], column_codec_named(codec_name)
    assert codec is not None, "every ranked type has a codec"
    try:
        if codec_name != "decimal" or type(value) is not int:
            codec.pack(value)
        shown = ranked.text(value)
        ranked.parse(shown)
    except (InvalidValueError, ValueError, OverflowError) as error:
        raise model.error(
            "a bound of an index of ranks is no value of its field",
            None,
            text,
            f"Give {option}= a time zone: datetime(2026, 1, 1, tzinfo=UTC)."
            if isinstance(value, datetime) and value.tzinfo is None
            else f"Give {option}= a finite value of the type {codec_name}.",
        ) from error
    return shown


show_public_path(RankIndex)

KIND: Final = RankKind()
