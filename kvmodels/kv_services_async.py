"""What a store offers besides keys and values, asynchronous: its queue and namespaces.

Rules of this module: it only puts the parts together. Names are those of ``kvmodels.kv_services``.
"""

from __future__ import annotations

from kvmodels.kv_namespace_async import AsyncKvNamespaces
from kvmodels.kv_queue_async import AsyncKvQueueing

__all__ = ["AsyncKvServices"]


class AsyncKvServices(AsyncKvQueueing, AsyncKvNamespaces):
    """The queue and the namespaces of a store."""

    __slots__ = ()
