"""The declaration of a history in ``Meta``: old versions of records are kept.

Rules of this module: a declaration is immutable and checked by itself; ``schema/compile/histories.py`` checks it
against the fields of its model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from datetime import timedelta
from typing import Any, Final, Literal, cast

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import ModelDefinitionError

Kept = Literal["removed"]
"""Which versions have rows, if not all: those that a removal ended."""

LONGEST_KEEP: Final = timedelta(days=365_000)
"""About 1,000 years; nothing is kept longer without being kept for ever."""


@dataclass(frozen=True, slots=True)
class History:
    """Keeps old versions of the records of a model, who wrote them, and a way back from removals.

    Attributes:
        keep: how long a version is kept after it ended; None: for ever.
        exclude: fields with a default that old versions do not hold; a write that changes only these ends no version.
        only: ``"removed"`` keeps only the versions that removals ended; None: all.

    Examples:
        >>> from datetime import timedelta
        >>> History(keep=timedelta(days=365), exclude=("preview",)).exclude
        ('preview',)
    """

    keep: timedelta | None = None
    exclude: tuple[str, ...] = field(default=(), kw_only=True)
    only: Kept | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "exclude", _names(self.exclude))
        if self.keep is not None and not _is_lifetime(self.keep):
            raise _refusal("keep", self.keep, "Give a positive timedelta, History(keep=timedelta(days=365)), or None.")
        if self.only not in (None, "removed"):
            raise _refusal("only", self.only, 'Write History(only="removed"), or leave only= out.')

    @property
    def keep_ms(self) -> int | None:
        """``keep`` in milliseconds; None: versions are kept without an end."""
        return None if self.keep is None else max(1, round(self.keep.total_seconds() * 1_000))


def _is_lifetime(keep: object) -> bool:
    return isinstance(keep, timedelta) and timedelta(0) < keep <= LONGEST_KEEP


def _names(given: Any) -> tuple[str, ...]:
    is_list = isinstance(given, Iterable) and not isinstance(given, str)
    names: list[Any] = [*cast("Any", given)] if is_list else []
    if (given and not names) or isinstance(given, str) or not all(isinstance(name, str) for name in names):
        raise _refusal(
            "exclude", cast("Any", given), 'Give names of fields in a tuple: exclude=("preview",), with the comma.'
        )
    return tuple(dict.fromkeys(names))


def _refusal(option: str, value: object, hint: str) -> ModelDefinitionError:
    return ModelDefinitionError(
        "an option of a history has a value that it does not take",
        model=None,
        option=f"{option}={short_repr(value)}",
        hint=hint,
    )


show_public_path(History)
