"""Give loaded objects the store that their blobs are read from.

Rules of this module: pure. The loaders of a collection with blobs belong to one store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from kvmodels.catalog.collection import LiveCollection, Loader
from kvmodels.core.operations import PlainRow
from kvmodels.schema.blobs.blob import Blob

T = TypeVar("T")


def bound(live: LiveCollection, instance: T) -> T:
    """Return an object whose blobs can be opened in the store of the collection."""
    if live.schema.blobs and instance is not None:
        bind(live, instance.__dict__.values())
    return instance


def bind(live: LiveCollection, values: Iterable[Any]) -> None:
    """Let the blobs among some values be opened in the store of the collection."""
    for value in values:
        if isinstance(value, Blob):
            value.belongs_to(live.compiled.blob_home)


def binding(live: LiveCollection, loader: Loader) -> Loader:
    """Return a loader whose objects have blobs that can be opened in the store of the collection."""
    if not live.schema.blobs:
        return loader

    def load(row: PlainRow, asked: bytes = b"", /) -> Any:
        return bound(live, loader(row, asked))

    return load
