"""What a store offers besides keys and values, synchronous: its queue and namespaces.

Rules of this module: it only puts the parts together. Names are those of ``kvmodels.kv_services_async``.
"""

from __future__ import annotations

from kvmodels.kv_namespace import KvNamespaces
from kvmodels.kv_queue import KvQueueing

__all__ = ["KvServices"]


class KvServices(KvQueueing, KvNamespaces):
    """The queue and the namespaces of a store."""

    __slots__ = ()
