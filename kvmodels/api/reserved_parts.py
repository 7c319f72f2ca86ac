"""The first key parts that raw writes may not use, because they belong to models.

Rules of this module: a part belongs to one collection, whatever the generation of its index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvmodels.catalog.keyspace import index_prefix
from kvmodels.schema.definition.definition import ModelSchema

GENERATION_MARK = "~"


class ReservedParts(Mapping[str, str]):
    """The first key parts that belong to models, including every generation of an index, with their collections."""

    def __init__(self, schemas: Mapping[str, ModelSchema]) -> None:
        self._owners: dict[str, str] = {}
        for name, schema in schemas.items():
            self.add(name, name)
            for index in schema.indexes:
                self.add(index_prefix(name, index, 1), name)

    def add(self, part: str, owner: str) -> None:
        """Reserve one more first part."""
        self._owners[part.partition(GENERATION_MARK)[0]] = owner

    def __getitem__(self, part: str) -> str:
        return self._owners[part.partition(GENERATION_MARK)[0]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._owners)

    def __len__(self) -> int:
        return len(self._owners)
