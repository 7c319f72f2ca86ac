"""What a store offers besides keys and values, synchronous: its queue, namespaces and locks.

Rules of this module: it only puts the parts together. Names are those of ``kvmodels.kv_services_async``.
"""

from __future__ import annotations

from kvmodels.kv_lock import KvLocking
from kvmodels.kv_namespace import KvNamespaces
from kvmodels.kv_queue import KvQueueing

__all__ = ["KvServices"]


class KvServices(KvQueueing, KvNamespaces, KvLocking):
    """The queue, the namespaces and the locks of a store."""

    __slots__ = ()
