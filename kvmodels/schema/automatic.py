"""What the library puts into the fields that it sets with every write, from its clock and from the stored record.

Rules of this module: pure, and no pydantic; ``schema/time_fields.py`` has the declarations.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from types import NoneType
from typing import Any, Final, Literal, get_args

from kvmodels.slotted import dataclass

__all__ = ["Automatic", "Kind", "TimeField"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Kind = Literal["AutoNow", "AutoNowAdd", "Version"]


class Automatic:
    """The default factory of a field that the library sets, which also says of which kind it is."""

    __slots__ = ("_unset", "kind")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._unset: Any = 0 if kind == "Version" else EPOCH

    def __call__(self) -> Any:
        """The value before the first write."""
        return self._unset

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        # Asked while the validator of a class is made, that is before the first object of it.
        if NoneType in get_args(source):
            self._unset = None
        elif source is date:
            self._unset = EPOCH.date()
        return handler(source)

    def __repr__(self) -> str:
        return f"{self.kind}()"


@dataclass(frozen=True, slots=True)
class TimeField:
    """A field that is set with every write.

    Attributes:
        name: of the field.
        automatic: what its kind is, and the value before the first write.
        is_date: the field holds a day of UTC.
    """

    name: str
    automatic: Automatic
    is_date: bool

    def first(self, now_ms: int) -> Any:
        """The value in a new record."""
        return 1 if self.automatic.kind == "Version" else self._moment(now_ms)

    def next(self, stored: Any, now_ms: int, *, counted: bool = False) -> Any:
        """The value in a record that is changed, after the one that is stored.

        Args:
            stored: the value before.
            now_ms: the time of the write.
            counted: ``stored`` is of the same commit, which is one change however often it writes the record.
        """
        if self.automatic.kind == "Version":
            return stored if counted else (stored or 0) + 1
        return stored if self.automatic.kind == "AutoNowAdd" else self._moment(now_ms)

    def _moment(self, now_ms: int) -> Any:
        moment = EPOCH + timedelta(milliseconds=now_ms)
        return moment.date() if self.is_date else moment
