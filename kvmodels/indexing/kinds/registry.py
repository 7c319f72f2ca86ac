"""The table of the maintenance of each kind of index; a module is loaded where a stored index has its kind.

Rules of this module: pure; only the name of a kind selects its module.
"""

from __future__ import annotations

from typing import Final

from kvmodels._support.lazy_modules import ModuleTable
from kvmodels.catalog.collection import LiveIndex
from kvmodels.catalog.keyspace import IndexLayout
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.errors import InvalidValueError
from kvmodels.indexing.entries import StoredRecord
from kvmodels.indexing.kinds.contract import KindMaintenance

MAINTENANCE: Final = ModuleTable[type[KindMaintenance]](
    "MAINTENANCE",
    {
        "entries": "kvmodels.indexing.kinds.entries",
        "counters": "kvmodels.indexing.kinds.counters",
        "geo": "kvmodels.indexing.kinds.geo",
        "interval": "kvmodels.indexing.kinds.interval",
        "rank": "kvmodels.indexing.kinds.rank",
        "search": "kvmodels.indexing.kinds.search",
        "trigram": "kvmodels.indexing.kinds.trigram",
        "exclusion": "kvmodels.indexing.kinds.exclusion",
        "vector": "kvmodels.indexing.kinds.vector",
    },
)
"""The class that maintains an index, by the name of its kind."""


def maintenance_of(index: LiveIndex) -> KindMaintenance:
    """Return the maintenance of an index generation, created at first use."""
    made: KindMaintenance | None = index.compiled.maintenance
    if made is None:
        made = index.compiled.maintenance = maintenance_for(index.layout)
    return made


def maintenance_for(layout: IndexLayout) -> KindMaintenance:
    """Return the maintenance of the index with this layout."""
    return MAINTENANCE[layout.definition.kind](layout)


def misfit(index: LiveIndex, record: StoredRecord, codec: ValueCodec, max_key_bytes: int) -> str | None:
    """Return why an index cannot hold a record, as the kind of a violation; None if it can.

    ``not_encodable``: a column or a sum is out of the range of its type, or is not stored; ``too_many``: more
    distinct values than ``max_fan_out``; ``too_long``: a key is longer than the engine takes; ``expires``: nothing
    would take the record out of its counters when it expires.
    """
    kind = maintenance_of(index)
    if not index.layout.covers(record.document):
        return "not_encodable"
    if kind.has_counters and record.expire_at is not None:
        return "expires"
    try:
        found = kind.contents(record, codec)
    except InvalidValueError:
        return "not_encodable"
    if found.fan_out > index.definition.max_fan_out:
        return "too_many"
    return "too_long" if any(len(key) > max_key_bytes for key in (*found.entries, *found.amounts)) else None
