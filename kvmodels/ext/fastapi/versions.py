"""Records of lists with their versions, which a client needs for If-Match.

Rules of this module: the version is next to the record and not in it, because it is not a field of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast, overload

from pydantic import BaseModel, ConfigDict

from kvmodels.query.query import Page
from kvmodels.schema.compile.model import KvModel

M = TypeVar("M", bound=KvModel)
T = TypeVar("T")


class Versioned(BaseModel, Generic[T]):
    """A record of a list with its version."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True, use_attribute_docstrings=True)

    version: str | None = None
    """The versionstamp of the record: its ETag without quotes. Null if the record is not committed yet."""
    record: T
    """The record."""


@overload
def versioned(page: Page[M]) -> Page[Versioned[M]]: ...
@overload
def versioned(page: Page[M], show: Callable[[M], T]) -> Page[Versioned[T]]: ...
def versioned(page: Page[Any], show: Callable[[Any], Any] | None = None) -> Page[Versioned[Any]]:
    """Return a page whose items are records with their versions; the response type is ``Page[Versioned[User]]``.

    Args:
        page: the page of records.
        show: returns what the client sees of a record, such as an object of another class. By default the record.

    Returns:
        A page with the same cursors.

    Examples:
        >>> from kvmodels import Database, KvModel, PrimaryKey
        >>> class Plant(KvModel, collection="plants"):
        ...     id: PrimaryKey[int]
        >>> plants = Database("memory://", models=[Plant])[Plant]
        >>> plant = plants.create(id=1)
        >>> [item] = versioned(plants.all().page(size=10)).items
        >>> item.version == plant.versionstamp, item.record
        (True, Plant(id=1))
    """
    items = [
        Versioned[Any](version=record.versionstamp, record=record if show is None else show(record))
        for record in page.items
    ]
    return cast("Page[Versioned[Any]]", replace(page, items=items))
