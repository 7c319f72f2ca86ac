"""A part of a store that is alone in it, so that the suites of engines run inside of a part."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kvmodels.catalog.keyspace import HEADER_KEY
from kvmodels.core.operations import AtomicWrite, Check, Row, Set
from kvmodels.engines.contract import Engine
from kvmodels.engines.part.engine import PartEngine
from kvmodels.engines.part.gate import PartPlace
from kvmodels.errors import ReadOnlyError

PREFIX = b"\x02part\x00"
ROW_KEY = b"\x02row\x00"
ROW = AtomicWrite((Check(ROW_KEY, None),), (Set(ROW_KEY, b"", 3),))


def _exists(row: Row | None) -> bool:
    return row is not None


class OwnedPart(PartEngine):
    """An engine of a part that closes, sweeps and backs up its store, as an engine does."""

    def __init__(self, inner: Engine) -> None:
        async def create() -> None:
            inner.commit(ROW)

        place = PartPlace(PREFIX, HEADER_KEY, ROW_KEY, _exists, create=lambda: inner.commit(ROW), acreate=create)
        super().__init__(inner, place)
        with suppress(ReadOnlyError):
            inner.commit(ROW)

    def sweep(self, limit: int) -> int:
        return self.inner.sweep(limit)

    def close(self) -> None:
        self.inner.close()


def part_of_each(make: Callable[..., Engine]) -> Callable[..., OwnedPart]:
    """Return a function that makes a part of each store that another function makes."""

    def make_part(*arguments: Any, **options: Any) -> OwnedPart:
        return OwnedPart(make(*arguments, **options))

    return make_part
