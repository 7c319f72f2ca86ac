"""Access to the counters of an aggregate index: numbers of records and sums, and no records.

Rules of this module: pure.
"""

from __future__ import annotations

from typing import ClassVar, Final

from kvmodels.query.aggregates import Measure
from kvmodels.query.kinds.contract import KindAccess
from kvmodels.schema.definition.definition import IndexDefinition
from kvmodels.schema.kinds.counters import Aggregates


class CounterAccess(KindAccess):
    """Access to an aggregate index."""

    shown: ClassVar[str | None] = "totals"

    def why_not(self, definition: IndexDefinition) -> str | None:
        """Return that it leads to no records."""
        del definition
        return "it holds totals and no records"

    def counters(self, definition: IndexDefinition, measure: Measure) -> tuple[str, ...] | None:
        """Return the counters for a result; None for a minimum, a maximum, and a sum that it does not keep."""
        if measure.function == "count" and (measure.field is None or not measure.nullable):
            return ()
        sums = definition.options.sums if isinstance(definition.options, Aggregates) else ()
        column = next((column for column in sums if column.field == measure.field), None)
        if column is None or measure.function in ("min", "max"):
            return None
        present = (f"present:{column.field}",) if column.nullable else ()
        if measure.function == "count":
            return present
        return (f"sum:{column.field}", f"sum:{column.field}:high", *present)


ACCESS: Final = CounterAccess()
