"""Positions of change feeds: where the next call continues, as an object and as text.

Rules of this module: pure. A text that a client sends is checked completely, because it becomes a key.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.operations import parse_versionstamp
from kvmodels.errors import InvalidArgumentError

_BEGINNING: Final = "beginning"

_TEXT: Final = re.compile(r"1\.([0-9A-Za-z]{1,64})\.([0-9a-f]{16})\.([0-9a-f]{20})(?:\.((?:[0-9a-f]{2})+))?")


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the changes of a store, up to which a reader has everything; ``str`` returns its text.

    Store it together with the data that were made from the changes, as text or as an object. ``Position.BEGINNING`` is
    the position of a reader that has nothing yet.

    Attributes:
        lineage: the lineage of the store; a copy of a store has another one.
        scope: a digest of the names of the collections.
        versionstamp: changes up to this commit were returned.
        cursor: the key where the first scan continues, as hexadecimal digits; None when it is complete.
    """

    BEGINNING: ClassVar[Position]

    lineage: str
    scope: str
    versionstamp: str
    cursor: str | None = None

    def __str__(self) -> str:
        if not self.lineage:
            return _BEGINNING
        parts = ["1", self.lineage, self.scope, self.versionstamp, *([] if self.cursor is None else [self.cursor])]
        return ".".join(parts)

    @classmethod
    def parse(cls, text: str, /) -> Position:
        """Return the position of a text that ``str`` has made.

        Raises:
            InvalidArgumentError: it is not such a text.

        Examples:
            >>> from kvmodels import Position
            >>> Position.parse("beginning") == Position.BEGINNING
            True
        """
        if text == _BEGINNING:
            return cls.BEGINNING
        # ``text`` comes from clients.
        found = _TEXT.fullmatch(text) if isinstance(cast("object", text), str) else None
        if found is None:
            raise InvalidArgumentError(
                "this is not a position",
                argument="position",
                value=text,
                hint="Pass the position of a page or of a watch, or its text; None begins with the present records.",
            )
        return cls(found[1], found[2], found[3], found[4])


Position.BEGINNING = Position("", "", "")


def resume_position(argument: str, value: object) -> Position | None:
    """Return the position of an argument; None for the beginning. Raises InvalidArgumentError."""
    if value is None:
        return None
    if isinstance(value, Position):
        found = Position.parse(str(value))  # one that was built by hand may be invalid
    else:
        try:
            found = Position.parse(cast("str", value))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(error.message, argument=argument, value=value, hint=error.hint) from None
    return found if found.lineage else None


def versionstamp_bytes(position: Position) -> bytes:
    """Return the versionstamp of a position as its bytes."""
    return parse_versionstamp(position.versionstamp)


show_public_path(Position)
