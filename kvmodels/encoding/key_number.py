"""The mark of an int field whose column is written as JavaScript writes its numbers.

Rules of this module: it is apart from the columns, which a program that only declares models has no use for yet.
"""

from __future__ import annotations

from kvmodels.public_path import show_public_path
from kvmodels.slotted import dataclass

__all__ = ["KeyNumber"]


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """Marks an int field whose column is written as a number, as JavaScript writes its integers.

    The magnitude must be less than 2**53. Without the mark a column holds an int of any size, which Deno reads as a
    bigint.

    Examples:
        >>> from typing import Annotated
        >>> Age = Annotated[int, KeyNumber()]
    """


show_public_path(KeyNumber)
