"""What a store offers besides keys and values, asynchronous: its queue.

Rules of this module: it only puts the parts together. Names are those of ``kvmodels.kv_services``.
"""

from __future__ import annotations

from kvmodels.kv_queue_async import AsyncKvQueueing

__all__ = ["AsyncKvServices"]


class AsyncKvServices(AsyncKvQueueing):
    """The queue of a store."""

    __slots__ = ()
