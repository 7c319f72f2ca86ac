"""Ways to choose how commits on PostgreSQL end: all early, none, or at random."""

from __future__ import annotations

import random

from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.postgres.modes import WriterMode

SEED = 20_261_129


class AlwaysEarly(WriterMode):
    """Ends every commit early."""

    @property
    def early(self) -> bool:
        return self.usable


class NeverEarly(WriterMode):
    """Ends every commit strictly."""

    @property
    def early(self) -> bool:
        return False


class RandomlyEarly(WriterMode):
    """Ends about half of the commits early."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(SEED)

    @property
    def early(self) -> bool:
        return self.usable and self._random.random() < 0.5


def use_mode(engine: PostgresEngine, kind: type[WriterMode]) -> None:
    """Have the commits of the store of an engine end in this way."""
    store = engine.check_open()
    mode = kind()
    mode.usable = store.mode.usable
    store.mode = mode
