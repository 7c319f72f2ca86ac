"""A lookup that one kind of index adds to ``filter()``, such as ``within`` of places.

Rules of this module: pure. The test of a stored document decides; ranges of the index are a shortcut that finds the
same records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from kvmodels.schema.definition.definition import Column, Document, IndexDefinition, ModelSchema

Test = Callable[[Document], bool]


class KindLookup(ABC):
    """A lookup of one kind of index; one object for each lookup.

    A lookup that names a field (``KindOptions.looked_up``) must not have the name of an ordinary lookup.
    """

    several: ClassVar[bool] = False
    """Whether an operand consists of several values of ``column``; an empty text stands for None among them."""

    def column(self, definition: IndexDefinition) -> Column | None:
        """Return the column whose values are operands, which can be given as text; None for other operands."""
        del definition
        return None

    @abstractmethod
    def operand(self, schema: ModelSchema, definition: IndexDefinition, value: Any) -> Any:
        """Return the checked and converted operand, immutable and hashable, whose ``repr`` plans show; never None.

        Raises InvalidValueError with a hint; the caller adds the model, and the name of the lookup as the field.
        """

    def narrows(self, operand: Any) -> bool:
        """Return whether ``KindDefinition.implied`` has a choice of entries for an operand; by default not.

        Then the planner takes the ranges of the chosen entries in place of those of the lookup.
        """
        del operand
        return False

    @abstractmethod
    def test(self, definition: IndexDefinition, operand: Any) -> Test:
        """Return the exact test of a stored document; called once for each query.

        The test returns False for a document without an entry, such as one with None. It raises KeyError if the
        document does not store a column yet. It also gets documents that the index cannot hold.
        """

    @abstractmethod
    def identity(self, operand: Any) -> Any:
        """Return numbers, strings, bytes, lists and None that equal operands share in every process, for cursors."""
