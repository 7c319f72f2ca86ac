"""The records that are removed or changed together with others, because of their foreign keys.

Rules of this module: the rules are those of the catalogue, which hold for every process. Rights are asked for every
collection that a removal can reach, whether a record refers to the removed ones at this moment or not: the next
moment one can. Only the first records are read, each through the index of its foreign key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request

from kvmodels.errors import KvModelsError
from kvmodels.ext.admin.backend import AdminAction, Backend
from kvmodels.ext.admin.texts import value_text
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.describe.describe import describe

MOST_SHOWN: Final = 100
"""The most records that are listed before a removal."""

_ACTIONS: Final[dict[str, AdminAction]] = {"cascade": "delete", "set_null": "edit"}


class CascadeRule(NamedTuple):
    """The effect of a removal on the records that refer to the removed one.

    Attributes:
        target: the collection of the removed record.
        collection: the collection of the records that refer to it.
        field: their foreign key.
        action: ``"delete"`` if they are removed, ``"edit"`` if the foreign key becomes None.
    """

    target: str
    collection: str
    field: str
    action: AdminAction


class CascadedRecords(NamedTuple):
    """The records of a collection that change with a removal.

    Attributes:
        rule: the effect.
        keys: the primary keys of the first ones, as text.
        has_more: whether there can be others.
    """

    rule: CascadeRule
    keys: tuple[str, ...] = ()
    has_more: bool = False


async def cascade_rules(backend: Backend, collection: str) -> list[CascadeRule]:
    """Return the effects that the removal of records of a collection can have; one read."""
    found: dict[CascadeRule, None] = {}
    every = [
        CascadeRule(one.index.references, one.collection, one.index.columns[0].name, _ACTIONS[one.index.on_delete])
        for one in await backend.call(backend.db.indexes)
        if one.index.references is not None and one.index.on_delete in _ACTIONS
    ]
    targets = deque([collection])
    while targets:
        target = targets.popleft()
        for rule in every:
            if rule.target == target and rule not in found:
                found[rule] = None
                if rule.action == "delete":
                    targets.append(rule.collection)
    return list(found)


def require_rights(backend: Backend, request: Request, rules: Iterable[CascadeRule]) -> None:
    """Raise HTTPException 403 if the user of a request may not do everything that a removal can do."""
    for rule in rules:
        if not backend.allows(request, rule.action, backend.models.get(rule.collection)):
            effect = "be removed" if rule.action == "delete" else f"lose their {rule.field}"
            raise HTTPException(403, f"Records of {rule.collection} would {effect} with them, which is not allowed.")


async def cascaded_records(
    backend: Backend, rules: Sequence[CascadeRule], collection: str, keys: Iterable[Any]
) -> list[CascadedRecords]:
    """Return the first records that change with the removal of some, grouped by the effect."""
    found: dict[CascadeRule, dict[str, None]] = {}
    cut = set[CascadeRule]()
    removed = deque((collection, key) for key in keys)
    seen, room = set(removed), MOST_SHOWN
    while removed:
        target, key = removed.popleft()
        for rule in (one for one in rules if one.target == target):
            records, has_more = await _referring(backend, rule, key, room)
            cut |= {rule} if has_more else set()
            for record in records:
                pk = _key_of(record)
                found.setdefault(rule, {})[value_text(pk)] = None
                if rule.action == "delete" and (rule.collection, pk) not in seen:
                    seen.add((rule.collection, pk))
                    removed.append((rule.collection, pk))
            room = max(0, room - len(records))
    return [CascadedRecords(rule, tuple(found.get(rule, ())), rule in cut) for rule in rules if rule in {*found, *cut}]


async def _referring(backend: Backend, rule: CascadeRule, key: Any, room: int) -> tuple[Sequence[Any], bool]:
    model = backend.models.get(rule.collection)
    if model is None or not room:
        return (), True
    try:
        page = await backend.call(backend.db[model].filter(**{rule.field: key}).page, size=room)
    except KvModelsError:
        return (), True  # a record is damaged, or the foreign key is that of another class of the collection
    return page.items, page.has_more


def _key_of(record: Any) -> Any:
    columns = describe(cast("type[KvModel]", type(record))).primary_key
    values = tuple(getattr(record, column.name) for column in columns)
    return values[0] if len(values) == 1 else values
