"""Texts that stand for hidden values, in records that are read.

Rules of this module: a record that was printed with its secrets hidden is not stored, or their values would be lost.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from kvmodels._support.secret_values import HIDDEN, has_mask
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.schema import schema_of


class Placeholder(NamedTuple):
    """A field whose value stands for a hidden one."""

    field: str
    stands_for: Literal["secret", "encrypted"]

    @property
    def problem(self) -> str:
        """The message for people."""
        if self.stands_for == "secret":
            return "this is the mask of a secret, not its value"
        return "this stands for the value of an encrypted field"


def placeholder_in(record: KvModel) -> Placeholder | None:
    """Return the first field of a record whose value stands for a hidden one; None if there is none."""
    for name, value in record.model_dump().items():
        if has_mask(value):
            return Placeholder(name, "secret")
        if value == HIDDEN and name in schema_of(type(record)).encrypted:
            return Placeholder(name, "encrypted")
    return None
