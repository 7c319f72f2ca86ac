"""The rows of the tables: what is measured, in which unit, and what may be expected of it.

Rules of this module: data only; whoever measures, compares or draws takes the rows from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["read", "write", "contended", "size", "time"]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. A rate is units a second, and more is better; sizes and times are better when small."""

    name: str
    title: str
    unit: str
    kind: Kind
    judged: bool = True
    """Whether it is held against the aims, or only shown."""

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.kind in ("read", "write", "contended")


ROWS = (
    Row("bulk", "insert in batches of 1,000", "records/s", "write"),
    Row("get", "get by key", "gets/s", "read"),
    Row("get_by_email", "get by unique index", "gets/s", "read"),
    Row("list_colour", "list by index", "objects/s", "read"),
    Row("page", "first page of 20", "pages/s", "read"),
    Row("scan", "full scan", "objects/s", "read"),
    Row("count", "count by index", "counts/s", "read"),
    Row("update_plain", "update a plain field", "updates/s", "write"),
    Row("update_indexed", "update an indexed field", "updates/s", "write"),
    Row("update_unique", "update a unique field", "updates/s", "write"),
    Row("insert", "insert one", "inserts/s", "write"),
    Row("contend_threads", "contended update, 4 threads", "updates/s", "contended"),
    Row("contend_processes", "contended update, 4 processes", "updates/s", "contended"),
    Row("delete", "delete", "deletes/s", "write"),
    Row("memory", "memory for the records", "MB", "size"),
    Row("disk", "disk, after closing", "MB", "size"),
    Row("open", "open and read one", "ms", "time"),
    Row("first_open", "open and read one, first", "ms", "time", judged=False),
    Row("import", "import", "ms", "time"),
)
CALLED = tuple(row.name for row in ROWS if row.kind in ("read", "write") and row.name != "bulk")
"""Rows that a worker runs call by call; ``bulk`` and the contended ones are asked for in their own way."""
READS = tuple(row.name for row in ROWS if row.kind == "read")
WRITES = tuple(row for row in CALLED if row not in READS)
