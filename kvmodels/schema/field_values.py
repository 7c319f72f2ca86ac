"""Reads one field out of a stored document as the attribute of its object would be, without decoding the others.

Rules of this module: for fields whose types cannot be columns, which are compared with Python's ``==``. What is missing
or not valid is an error that leaves it to the caller to decode the whole record.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from operator import itemgetter
from typing import Any, cast

import pydantic
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kvmodels.schema.definition import Document, ModelSchema

__all__ = ["field_reader"]


def field_reader(schema: ModelSchema, name: str) -> Callable[[Document], Any]:
    """What reads a field of a stored document.

    It raises KeyError if the document lacks the field, and TypeError, ValueError (pydantic's ValidationError is one) or
    one of the library's errors if the stored value is not of the field.
    """
    storage = schema.fields[name]
    if storage.encode is None and storage.decode is None:
        return itemgetter(name)  # stored as it is
    info = cast("FieldInfo", schema.shape.model_fields[name])
    # A model of this one field, so that it is validated with the settings of the whole one. The copy is for pydantic,
    # which completes the FieldInfo that it is given.
    fields: Any = {name: (info.annotation, copy(info))}
    part: type[BaseModel] = pydantic.create_model(schema.name, __config__=schema.model.model_config, **fields)
    validate, decode = part.__pydantic_validator__.validate_python, storage.decode

    def read(document: Document) -> Any:
        stored = document[name]
        given = {name: stored if decode is None else decode(stored)}
        return validate(given, by_alias=False, by_name=True).__dict__[name]

    return read
