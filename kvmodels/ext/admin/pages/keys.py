"""The raw keys of the store as a tree, each with its explanation.

Rules of this module: a level of the tree is read by jumps, one row for each child, however many keys are below it.
"""

from __future__ import annotations

import base64
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import Response

from kvmodels._support.visible import visible
from kvmodels.core.keys import Key, encode_part
from kvmodels.errors import InvalidKeyError
from kvmodels.ext.admin.backend import Backend
from kvmodels.ext.admin.pages.store_page import StorePage, link, page, records_path
from kvmodels.ext.admin.texts import key_line, key_of_line, stored_text, value_text
from kvmodels.flows.describe.keys import KeyExplanation
from kvmodels.schema.describe.describe import describe

_CHILDREN: Final = 50
_LONGEST_VALUE: Final = 20_000
_BEHIND_SUBTREE: Final = b"\xff"
"""Sorts after every part that can follow in a key."""


class KeysPage(StorePage):
    """The tree of raw keys."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, label="Keys", icon="fa-solid fa-key", path="/keys")

    @page("")
    async def index(self, request: Request) -> Response:
        """Show one level of the tree, and the value of the key of this level."""
        prefix = _key(request.query_params.get("prefix") or "[]")
        after = request.query_params.get("after")
        children = await self._children(prefix, _part_after(prefix, after) if after else None)
        more = len(children) > _CHILDREN
        children = children[:_CHILDREN]
        return self.render(
            request,
            "keys.html",
            heading=key_line(prefix) if prefix else "All keys",
            prefix=prefix,
            crumbs=[(visible(_part(part)), key_line(prefix[: depth + 1])) for depth, part in enumerate(prefix)],
            children=[await self._described(prefix, one) for one in children],
            entry=await self._entry(request, prefix) if prefix else None,
            next_after=key_line((*prefix, children[-1])) if more else None,
            after=after,
        )

    async def _children(self, prefix: Key, after: Any) -> list[Any]:
        """Return the next parts below a prefix, one more than a page shows."""
        found: list[Any] = []
        cursor = None if after is None else _behind(after)
        while len(found) <= _CHILDREN:
            listing = self.backend.db.kv.list(prefix, limit=1, cursor=cursor, keys_only=True)
            entries = await self.backend.take(listing, 1)
            if not entries:
                break
            found.append(entries[0].key[len(prefix)])
            cursor = _behind(found[-1])
        return found

    async def _described(self, prefix: Key, part: Any) -> dict[str, Any]:
        key = (*prefix, part)
        explanation = await self.backend.call(self.backend.db.explain_key, key)
        below = await self.backend.take(self.backend.db.kv.list(key, limit=1, keys_only=True), 1)
        return {
            "text": visible(_part(part)),
            "line": key_line(key),
            "about": visible(str(explanation)) if explanation.exists else "",
            "is_key": explanation.exists,
            "has_children": bool(below),
        }

    async def _entry(self, request: Request, key: Key) -> dict[str, Any] | None:
        explanation = await self.backend.call(self.backend.db.explain_key, key)
        if not explanation.exists:
            return None
        entry = await self.backend.call(self.backend.db.kv.get, key)
        text = stored_text(entry.value)
        shown = visible(text[:_LONGEST_VALUE])
        return {
            "about": visible(str(explanation)),
            "versionstamp": entry.versionstamp,
            "value": shown + ("…" if len(text) > _LONGEST_VALUE else ""),
            "record_url": self._record_url(request, explanation),
        }

    def _record_url(self, request: Request, explanation: KeyExplanation) -> str | None:
        """Return the URL of the record that a key belongs to; None if the URL cannot name it."""
        model = self.backend.models.get(explanation.collection or "")
        key: Any = explanation.primary_key
        values = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
        if model is None or not all(isinstance(value, (str, int)) for value in values):
            return None
        names = [column.name for column in describe(model).primary_key]
        query = {name: value_text(value) for name, value in zip(names, values, strict=True)}
        return link(f"{request.scope['root_path']}{records_path(explanation.collection or '')}/record", query)


def _behind(part: Any) -> str:
    """Return the position after all keys whose next part is this one."""
    return base64.urlsafe_b64encode(encode_part(part) + _BEHIND_SUBTREE).decode()


def _key(line: str) -> Key:
    try:
        return key_of_line(line)
    except ValueError as error:
        raise InvalidKeyError("this is not a key", key=line, hint='Write a JSON array: ["users", 7].') from error


def _part_after(prefix: Key, line: str) -> Any:
    """Return the next part of a key below a prefix. Raises InvalidKeyError: the key is not one level below it."""
    key = _key(line)
    if not key or key_line(key[:-1]) != key_line(prefix):
        raise InvalidKeyError(
            "this is not a position below the prefix", key=line, hint="Follow the links of the page, or leave it out."
        )
    return key[-1]


def _part(part: Any) -> str:
    return part if isinstance(part, str) else key_line((part,))[1:-1]
