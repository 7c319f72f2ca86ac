"""The storage form of a blob field, and checks of the model that declares one.

Rules of this module: pure; a ModelDefinitionError names the model and the field or option.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.blobs.blob import Blob, decoded_blob, encoded_blob
from kvmodels.schema.compile.options import ModelOptions
from kvmodels.schema.declare.annotations import Plain
from kvmodels.schema.definition.forms import Form, optional


def blob_form(inner: Plain) -> Form | None:
    """Return the form of a field of the type ``Blob`` or ``Blob | None``; None for any other type."""
    if inner.annotation is not Blob:
        return None
    form = Form("Blob", (Blob,), frozenset({dict}), encode=encoded_blob, decode=decoded_blob)
    return optional(form) if inner.nullable else form


def check_blobs(model: type[Any], options: ModelOptions, blobs: Collection[str]) -> None:
    """Refuse blobs in a model whose records expire."""
    if blobs and options.ttl_ms is not None:
        raise ModelDefinitionError(
            "a model with blobs has a lifetime of records",
            model=model.__name__,
            field=next(iter(blobs)),
            option="ttl",
            hint="Nothing runs when a record expires, so its files would be left behind: leave out ttl.",
        )
