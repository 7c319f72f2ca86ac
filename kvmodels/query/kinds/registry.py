"""The table of the access of each kind of index; a module is loaded where a readable index has its kind.

Rules of this module: pure; only the name of a kind selects its module.
"""

from __future__ import annotations

from typing import Final

from kvmodels._support.lazy_modules import ModuleTable
from kvmodels.query.kinds.contract import KindAccess

ACCESS: Final = ModuleTable[KindAccess](
    "ACCESS",
    {
        "entries": "kvmodels.query.kinds.entries",
        "counters": "kvmodels.query.kinds.counters",
        "geo": "kvmodels.query.kinds.geo",
        "interval": "kvmodels.query.kinds.interval",
        "rank": "kvmodels.query.kinds.rank",
        "search": "kvmodels.query.kinds.search",
        "trigram": "kvmodels.query.kinds.trigram",
        "exclusion": "kvmodels.query.kinds.exclusion",
        "vector": "kvmodels.query.kinds.vector",
    },
)
"""The access to an index, by the name of its kind."""
