"""What a store offers besides keys and values, asynchronous: its queue, namespaces and locks.

Rules of this module: it only puts the parts together. Names are those of ``kvmodels.kv_services``.
"""

from __future__ import annotations

from kvmodels.kv_lock_async import AsyncKvLocking
from kvmodels.kv_namespace_async import AsyncKvNamespaces
from kvmodels.kv_queue_async import AsyncKvQueueing

__all__ = ["AsyncKvServices"]


class AsyncKvServices(AsyncKvQueueing, AsyncKvNamespaces, AsyncKvLocking):
    """The queue, the namespaces and the locks of a store."""

    __slots__ = ()
