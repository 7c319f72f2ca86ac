"""AUTO, the default of an integer primary key that the store gives out.

Rules of this module: a key that was not given yet is 0, so that it survives validation, copies and JSON. The store
never gives out 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from kvmodels.errors import ModelDefinitionError


class AutomaticKey(int):
    """The value of a key that was not given yet; it equals 0."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "AUTO"

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Give a JSON schema the default 0, which ``Field`` removes; pydantic warns of one that it cannot encode."""
        return core_schema.int_schema()


AUTO: Final = AutomaticKey()
"""``id: PrimaryKey[int] = Field(default=AUTO)``: the store gives each new record the next unused number, from 1 on.

Numbers increase in each process, are never given out twice, and may have gaps: a process reserves a range of them, and
what it has not used when it ends is lost.
"""


def without_default(schema: dict[str, Any]) -> None:
    """Remove the default from the JSON schema of a field: a stored record never has it."""
    schema.pop("default", None)


def automatic_key(model: type[Any], types: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """Return the field whose values the store gives out; None if there is none.

    ``types`` holds the annotation of each field without None and Annotated, ``keys`` the fields of the primary key.
    Raises ModelDefinitionError for a field that is not the whole primary key, or not an int.
    """
    fields: Mapping[str, FieldInfo] = model.model_fields
    for name, info in fields.items():
        if not isinstance(info.default, AutomaticKey):
            continue
        if keys != (name,) or types[name] is not int:
            raise ModelDefinitionError(
                "a field with AUTO is not an integer primary key",
                model=model.__name__,
                field=name,
                option="AUTO",
                hint=f"Write {name}: PrimaryKey[int] = Field(default=AUTO), without other fields in the primary key.",
            )
        return name
    return None
