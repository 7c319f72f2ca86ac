"""References between records: the choices of a select, and the lists of records that refer to one.

Rules of this module: constant cost; nothing is counted, and a select has at most ``MOST_CHOICES`` targets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from kvmodels.errors import KvModelsError
from kvmodels.ext.admin.backend import Backend
from kvmodels.ext.admin.forms.fields import FormField, references_of
from kvmodels.ext.admin.texts import cell_text, value_text
from kvmodels.schema.describe.describe import describe

MOST_CHOICES: Final = 50


class TargetChoices(NamedTuple):
    """The first records that a foreign key can refer to.

    Attributes:
        options: the text of each primary key, with a label.
        complete: whether these are all, so that a select can offer them.
    """

    options: tuple[tuple[str, str], ...]
    complete: bool


class Referrers(NamedTuple):
    """The records of a collection that refer to a record by one foreign key."""

    collection: str
    field: str
    text: str


async def target_choices(backend: Backend, request: Request, fields: Iterable[FormField]) -> dict[str, TargetChoices]:
    """Return the choices of each foreign key that the user may see; one page of each target is read."""
    found: dict[str, TargetChoices] = {}
    for target in {field.target for field in fields if field.target is not None}:
        model = backend.models.get(target)
        if model is None or len(describe(model).primary_key) != 1 or not backend.allows(request, "view", model):
            continue
        key = describe(model).primary_key[0].name
        label = _label_field(model, key)
        try:
            page = await backend.call(backend.db[model].all().page, size=MOST_CHOICES)
        except KvModelsError:
            continue  # a record of the target is damaged; the key can still be typed
        options = [(value_text(getattr(one, key)), _label(one, key, label)) for one in page.items]
        found[target] = TargetChoices(tuple(options), not page.has_more)
    return found


def referrers_of(backend: Backend, request: Request, collection: str, record: Any, keys: list[str]) -> list[Referrers]:
    """Return the collections that the user may see, and whose records may refer to a record. Nothing is read."""
    if len(keys) != 1:
        return []
    text = value_text(getattr(record, keys[0]))
    return [
        Referrers(name, field, text)
        for name, model in backend.models.items()
        for field, target in references_of(model).items()
        if target == collection and backend.allows(request, "view", model)
    ]


def _label_field(model: type[Any], key: str) -> str | None:
    """Return the first text field besides the primary key, which usually names a record."""
    return next((field.name for field in describe(model).fields if field.type == "str" and field.name != key), None)


def _label(record: Any, key: str, field: str | None) -> str:
    text = cell_text(getattr(record, key))
    return text if field is None else f"{text} – {cell_text(getattr(record, field, None))}"
