"""One collection as two releases of a program declare it: the later one has three more indexes."""

from __future__ import annotations

from kvmodels import AUTO, Field, Index, Indexed, KvModel, PrimaryKey, Unique, UniqueConstraint


class PersonFields(KvModel, abstract=True):
    id: PrimaryKey[str]
    email: Unique[str | None] = Field(default=None)
    city: Indexed[str] = Field(default="x")
    zone: Indexed[str] = Field(default="n")
    team: str = "red"
    phone: str | None = None
    hits: int = 0


class OldPerson(PersonFields, collection="people"):
    """The release that is running; ``team`` entries hold copies of the record."""

    class Meta:
        indexes = (Index("team", store="record"),)


class Person(PersonFields, collection="people"):
    """The next release: a field more, and one index more of each kind, to be built beside readers and writers."""

    score: int = 0

    class Meta:
        indexes = (
            Index("team", store="record"),
            Index("score"),
            UniqueConstraint("phone"),
            Index("city", "-score", name="ranking", store="record"),
        )


class Numbered(KvModel, collection="numbered"):
    """A record whose primary key the store gives out."""

    id: PrimaryKey[int] = Field(default=AUTO)
