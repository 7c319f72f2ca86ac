"""Groups by a period: the beginning of the year, month or hour of a date, in UTC or in a time zone.

The beginning of a period is the earliest time on the clocks of its zone. Where the clocks repeat an hour, both hours
are periods of their own. Read in the order of the instants, periods are in order too, except where the clocks go back
over the beginning of one: then the records of a few periods alternate. They are all within two days of the change, so
the periods of these days are held until they are complete (``complete_before``).

Rules of this module: pure. None has no period and stays None.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args
from zoneinfo import ZoneInfo

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError, InvalidValueError, UnknownLookupError
from kvmodels.query.projection import FieldName
from kvmodels.schema.definition.definition import ColumnSource, ModelSchema

Unit: TypeAlias = Literal["year", "quarter", "month", "week", "day", "hour"]
"""The length of a period."""

_UNITS: Final[tuple[str, ...]] = get_args(Unit)
_DATES: Final = tuple(unit for unit in _UNITS if unit != "hour")
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)
_MOST_SHIFTED: Final = timedelta(days=2)
"""More than the clocks of two moments in one zone can differ beyond the time between them."""


@dataclass(frozen=True, slots=True)
class Trunc:
    """The period of a date or a datetime; an argument of ``group_by``.

    Args:
        field: a field of datetimes with a time zone, or of dates.
        unit: ``"year"``, ``"quarter"``, ``"month"``, ``"week"`` (from Monday), ``"day"`` or ``"hour"``.
        tz: the name of the time zone of the periods, ``"Europe/Zurich"``; dates have none.

    Examples:
        >>> from datetime import UTC, datetime
        >>> from kvmodels import Count, Database, Indexed, KvModel, PrimaryKey, Trunc
        >>> class Rain(KvModel, collection="rains"):
        ...     id: PrimaryKey[int]
        ...     at: Indexed[datetime]
        >>> rains = Database("memory://", models=[Rain])[Rain]
        >>> _ = rains.bulk_create([Rain(id=day, at=datetime(2026, 1, day * 9, tzinfo=UTC)) for day in range(1, 4)])
        >>> for row in rains.group_by(Trunc("at", "month")).aggregate(Count()):
        ...     print(row["at__month"].date(), row["count"])
        2026-01-01 3
    """

    field: FieldName
    unit: Unit
    tz: str = "UTC"


class Period(NamedTuple):
    """A checked ``Trunc``: the unit, the zone (None for dates) and its name."""

    unit: str
    zone: tzinfo | None
    zone_name: str

    def call(self, name: str) -> str:
        """Return the ``Trunc`` of a field."""
        zone = "" if self.zone in (None, UTC) else f', tz="{self.zone_name}"'
        return f'Trunc("{name}", "{self.unit}"{zone})'

    @property
    def may_alternate(self) -> bool:
        """Whether the clocks of the zone may go back, so that records of a few periods may alternate."""
        return self.zone is not None and self.zone is not UTC

    def start_of(self, value: Any) -> Any:
        """Return the beginning of the period of a date or datetime; None stays. Raises InvalidValueError."""
        if value is None:
            return None
        if self.zone is None:
            return _first_day(value, self.unit)
        local = _local(value, self.zone)
        if self.unit == "hour":
            start = local.replace(minute=0, second=0, microsecond=0)
            first = start.replace(fold=0)
            return first if first.utcoffset() == start.utcoffset() else start
        day = _first_day(local.date(), self.unit)
        return datetime(day.year, day.month, day.day, tzinfo=self.zone)

    def complete_before(self, value: Any, *, descending: bool) -> Callable[[Any], bool]:
        """Return whether no record at or after ``value``, in the order of the instants, is in the period of a start."""
        if value is None or not self.may_alternate:
            current = self.start_of(value)
            return lambda start: start != current
        instant = _local(value, UTC).replace(tzinfo=None)
        edge = _shifted(instant, _MOST_SHIFTED if descending else -_MOST_SHIFTED)
        last = self._naive_start(edge)
        if descending:
            return lambda start: start is not None and start.replace(tzinfo=None) > last
        return lambda start: start is None or start.replace(tzinfo=None) < last

    def _naive_start(self, clock: datetime) -> datetime:
        if self.unit == "hour":
            return clock.replace(minute=0, second=0, microsecond=0)
        day = _first_day(clock.date(), self.unit)
        return datetime(day.year, day.month, day.day)


def period_of(schema: ModelSchema, given: Trunc, name: str, source: ColumnSource) -> Period:
    """Return the checked period of a field. Raises InvalidArgumentError or UnknownLookupError."""
    kind = source.codec.name
    if kind not in ("date", "datetime") or source.many:
        raise UnknownLookupError(
            "only a field of one date or datetime has periods",
            model=schema.name,
            field=name,
            lookup="Trunc",
            hint="Group by the field itself, or by another one.",
        )
    units = _DATES if kind == "date" else _UNITS
    if given.unit not in units:
        raise InvalidArgumentError(
            "this is not a period of the field",
            argument="unit",
            value=given.unit,
            expected=units,
            hint=f"Give one of {', '.join(units)}.",
        )
    zone = _zone(given.tz)
    if kind == "date" and zone is not UTC:
        raise InvalidArgumentError(
            "dates have no time zone", argument="tz", value=given.tz, hint=f'Leave it out: Trunc("{name}", ...).'
        )
    return Period(given.unit, None if kind == "date" else zone, given.tz)


def _zone(name: Any) -> tzinfo:
    if name == "UTC":
        return UTC
    if isinstance(name, str):
        try:
            return ZoneInfo(name)
        except (OSError, ValueError, LookupError):  # a folder, an invalid name, an unknown one
            pass
    raise InvalidArgumentError(
        "this is not the name of a time zone",
        argument="tz",
        value=short_repr(name),
        hint='Give a name such as "Europe/Zurich". If the system has no such zone, install the package tzdata.',
    )


def _first_day(day: date, unit: str) -> date:
    if unit == "week":
        return day - timedelta(days=day.weekday())
    if unit in ("day", "hour"):
        return day
    month = {"year": 1, "quarter": day.month - (day.month - 1) % 3, "month": day.month}[unit]
    return date(day.year, month, 1)


def _local(value: datetime, zone: tzinfo) -> datetime:
    if value.utcoffset() is None:
        raise InvalidValueError(
            "a naive datetime has no period in a time zone",
            type="datetime",
            hint="Store it with a time zone: datetime.now(UTC).",
        )
    try:
        return value.astimezone(zone)
    except OverflowError:
        raise InvalidValueError(
            "this datetime has no equal in the time zone of a period",
            type="datetime",
            hint="There its year must be from 1 to 9999.",
        ) from None


def _shifted(clock: datetime, by: timedelta) -> datetime:
    try:
        return clock + by
    except OverflowError:
        return (_LATEST if by > timedelta(0) else _EARLIEST).replace(tzinfo=None)


show_public_path(Trunc)
