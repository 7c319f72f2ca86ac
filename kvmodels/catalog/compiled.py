"""The compiled values of one collection under one header.

Rules of this module: only places and types. The module that uses a value compiles it when it is first needed; it is
valid as long as the header: a new header brings a new ``CompiledCollection``. Values whose types higher packages define
are kept as ``object``; readers check the class.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import Any, Final, Protocol, TypeAlias

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.operations import PlainRow


class Loader(Protocol):
    """Makes the object of a record row, whose key is that of a record; raises DecodeError as ``object_of``."""

    def __call__(self, row: PlainRow, asked: bytes = b"", /) -> Any:
        """Return the object; ``asked`` is the key that was asked for, if it is known to be that of the row."""
        ...


EntryLoader: TypeAlias = Callable[[PlainRow, bytes], Any]
"""Makes the object of a record row, given the key of an index entry that led to it; None if the record has no such
entry."""

BatchLoader: TypeAlias = Callable[[Sequence[PlainRow], bytes], "list[Any] | None"]
"""Makes the objects of rows of records, given the columns that led to all of them (b"": they were read as records).
None: the rows must be loaded one by one."""

LoaderKey: TypeAlias = tuple[type, bool]
"""The codec, and whether keys are compared with the documents."""

MAX_PLANS: Final = 1_000
"""The most plans that are kept for a collection; then all are forgotten and made again."""


@dataclass(slots=True)
class CompiledCollection:
    """Compiled values of one collection under one header, each made when it is first needed.

    Attributes:
        loaders: of records by key or range; all stores of one process with this header share them.
        entry_loaders: by the name of the index whose entries lead to the records.
        batch_loaders: by the name of the index, None for records themselves; a value is None where rows must be loaded
            one by one.
        lookups: of one record, by model, fields and whether the record must exist.
        plans: decisions and range plans by the shape of a query; at most ``MAX_PLANS``.
        writer: compiles the writes of single records, where every index is simple.
        inserts: the same for batches of new records.
    """

    loaders: dict[LoaderKey, Loader] = field(default_factory=dict[LoaderKey, Loader])
    entry_loaders: dict[str, EntryLoader] = field(default_factory=dict[str, EntryLoader])
    batch_loaders: dict[str | None, BatchLoader | None] = field(
        default_factory=dict["str | None", "BatchLoader | None"]
    )
    lookups: dict[Hashable, object] = field(default_factory=dict[Hashable, object])
    plans: dict[Hashable, object] = field(default_factory=dict[Hashable, object])
    writer: object | None = None
    inserts: object | None = None

    def keep_plan(self, shape: Hashable, plan: object) -> None:
        """Keep a plan for further queries of its shape."""
        if len(self.plans) >= MAX_PLANS:
            self.plans.clear()
        self.plans[shape] = plan
