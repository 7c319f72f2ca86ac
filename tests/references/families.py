"""Three models whose foreign keys form a cycle, with each effect of a removal, and a reference of each kind."""

from __future__ import annotations

from typing import Annotated

from kvmodels import CASCADE, PROTECT, SET_NULL, Field, ForeignKey, KvModel, PrimaryKey, Unique


class Town(KvModel, collection="towns"):
    id: PrimaryKey[int]
    region: Annotated[ForeignKey[int | None, "Town"], CASCADE] = Field(default=None)  # noqa: UP037
    charter: Annotated[ForeignKey[int | None, "Deed"], PROTECT] = Field(default=None)  # noqa: UP037


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]
    home: Annotated[ForeignKey[int | None, Town], CASCADE] = Field(default=None)
    spouse: Annotated[ForeignKey[int | None, "Person"], SET_NULL, Unique()] = Field(default=None)  # noqa: UP037


class Deed(KvModel, collection="deeds"):
    id: PrimaryKey[int]
    owner: Annotated[ForeignKey[int | None, Person], CASCADE] = Field(default=None)
    witness: Annotated[ForeignKey[int | None, Person], SET_NULL] = Field(default=None)


FAMILIES = (Town, Person, Deed)
