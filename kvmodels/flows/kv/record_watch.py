"""Watches of the records of a model: the present objects first, then each record that has changed or was removed.

Rules of this module: positions, batches and waiting are those of ``kvmodels.flows.kv.watch``. Objects are made of the
rows that the watch has read, with the header of that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kvmodels._support.naming import show_public_path
from kvmodels.catalog.collection import Loader
from kvmodels.core.keys import key_range
from kvmodels.core.operations import Row, format_versionstamp
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.loader import loader_of
from kvmodels.flows.hydration.rows import row_of_class, shown_key
from kvmodels.flows.kv.watch import RangeWatch, position_of, timeout_of
from kvmodels.schema.definition.definition import ModelSchema

M = TypeVar("M")


class ChangedRecord(NamedTuple, Generic[M]):
    """A record that a watch delivers, in its latest version, or its removal.

    Attributes:
        key: the primary key, a tuple if it is composite.
        record: the object; None if the record was removed or has expired.
        versionstamp: the version of the record; None if it was removed.
    """

    key: Any
    record: M | None
    versionstamp: str | None


class RecordWatch(RangeWatch[ChangedRecord[Any]]):
    """Delivers the records of a model, unless it resumes after a commit, and then the records that change.

    ``since`` and ``timeout`` are the arguments of ``watch``. Raises InvalidArgumentError if one is invalid.
    """

    def __init__(
        self,
        context: Context,
        schema: ModelSchema,
        monotonic: Callable[[], float],
        *,
        since: str | None,
        timeout: float | None,
    ) -> None:
        ends = key_range(prefix=(schema.collection,), start=None, end=None)
        super().__init__(ends, position_of(since), lambda limits: limits, (timeout_of(timeout), monotonic))
        self._context = context
        self._schema = schema

    def _listed(self, rows: Sequence[Row]) -> Flow[list[ChangedRecord[Any]]]:
        load = yield from self._loader()
        # Records of other classes in the collection are left out.
        return [self._of(row, load) for row in rows if row_of_class(self._context, self._schema, row) is not None]

    def _changed(self, changes: Sequence[tuple[bytes, Row | None]]) -> Flow[list[ChangedRecord[Any]]]:
        load = yield from self._loader()
        items: list[ChangedRecord[Any]] = []
        for key, row in changes:
            # A record of another class may have been one of this class before, so it is reported as removed.
            own = row_of_class(self._context, self._schema, row)
            items.append(ChangedRecord(self._key(key), None, None) if own is None else self._of(own, load))
        return items

    def _of(self, row: Row, load: Loader) -> ChangedRecord[Any]:
        return ChangedRecord(self._key(row.key), load(row), format_versionstamp(row.versionstamp))

    def _key(self, key: bytes) -> Any:
        return shown_key(self._context.layouts[self._schema.collection].unpack_key(key))

    def _loader(self) -> Flow[Loader]:
        _, live = yield from live_collection(self._context, self._schema)
        return loader_of(self._context, live, checks=True)


show_public_path(ChangedRecord)
