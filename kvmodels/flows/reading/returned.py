"""The records that an iteration has returned, so that it returns none of them twice.

A loop may change the field of its order, and so move the record to a place that the iteration has yet to read. Then a
loop such as "run each job and schedule it again" would never end.

Rules of this module: memory is bounded by the packed primary key and 100 bytes for each record. In the order of the
primary key nothing is kept: no write moves a record there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from kvmodels.catalog.keyspace import RecordLayout
from kvmodels.flows.execution.join import MatchedRecord
from kvmodels.schema.instances import ObjectState, loaded_key, state_of

_SLOT_BYTES: Final = 64
"""The most memory of a set for each key. A small set that has just grown uses twice as much, until it is copied."""


class ReturnedRecords:
    """The primary keys of the records that one iteration has returned."""

    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout
        self._keys: set[bytes] = set()

    def new_of(self, results: Sequence[MatchedRecord | Any], *, last: bool) -> list[Any]:
        """Return the results of a batch that are returned for the first time; those of the last one are not kept."""
        known = self._keys
        keys = [self._key_of(one) for one in results]
        new = [one for one, key in zip(results, keys, strict=True) if key not in known] if known else list(results)
        if not last:
            known.update(keys)
            if sys.getsizeof(known) > _SLOT_BYTES * len(known):
                self._keys = set(known)
        return new

    def _key_of(self, result: MatchedRecord | Any) -> bytes:
        if isinstance(result, MatchedRecord):
            return result.pk
        key = loaded_key(result)
        if key is not None:
            return self._layout.pk_of(key)
        state = state_of(result)
        assert isinstance(state, ObjectState)  # it was just read
        return self._layout.pack(state.key)
