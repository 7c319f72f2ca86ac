"""The messages of the queue, and the locks.

Rules of this module: messages are listed without taking them, and at most ``_SHOWN`` of them are read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from kvmodels._support.visible import visible
from kvmodels.ext.admin.backend import Backend
from kvmodels.ext.admin.pages.store_page import StorePage, page
from kvmodels.ext.admin.texts import key_line, shortened, stored_text

_SHOWN: Final = 100


class QueuePage(StorePage):
    """The queue and the locks of the store."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, label="Queue", icon="fa-solid fa-envelope", path="/queue")

    @page("")
    async def index(self, request: Request) -> Response:
        """Show the next messages, and the locks."""
        messages = await self.backend.call(self.backend.db.kv.messages, limit=_SHOWN)
        return self.render(
            request,
            "queue.html",
            heading="Queue",
            messages=[_row(one) for one in messages],
            shown=_SHOWN,
            locks=await self._locks(),
        )

    async def _locks(self) -> list[dict[str, Any]]:
        locks = await self.backend.call(self.backend.db.kv.locks)
        return [
            {"name": visible(str(one.name)), "held": one.held, "ends": _moment(one.expires_at), "waiting": one.waiting}
            for one in locks
        ]


def _row(message: Any) -> dict[str, Any]:
    return {
        "id": message.id,
        "ready_at": _moment(message.ready_at),
        "taken": message.taken,
        "redeliveries": message.redeliveries,
        "value": visible(shortened(stored_text(message.value), 300)),
        "undelivered": [key_line(key) for key in message.keys_if_undelivered],
    }


def _moment(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
