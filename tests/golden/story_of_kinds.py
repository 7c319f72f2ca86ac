"""The story of the index kinds that came later in format 1, whose bytes are a promise as well.

``python -m tests.golden.story_of_kinds FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel

from kvmodels.catalog.keyspace import build_key
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.declarations import AggregateIndex, Index, UniqueConstraint
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.declare.markers import Field, Indexed, MultiIndexed, PrimaryKey, Unique
from tests.golden.story import Stopped, TellingEngine, database, sets, write_files


class Kind(Enum):
    CITY = "city"
    VILLAGE = "village"


class Address(BaseModel):
    city: str
    zip: str | None = None


def initial(name: str) -> str:
    return name[:1].upper()


def words(name: str) -> list[str]:
    return name.split()


class Place(KvModel, collection="places"):
    """Every kind of index, in the first release of a program."""

    id: PrimaryKey[int]
    name: Annotated[str, Unique(key=str.casefold, include=("name", "score"))]
    kind: Kind = Kind.CITY
    country: Indexed[str]
    population: int = 0
    area: int | None = None
    age: timedelta = timedelta()
    score: float = 0.0
    names: Annotated[list[str], MultiIndexed(key=str.lower)] = Field(default_factory=list)
    codes: MultiIndexed[set[int] | None] = Field(default=None)
    aliases: tuple[str, ...] = ()
    address: Address | None = None
    branches: list[Address] = Field(default_factory=list)

    class Meta:
        schema_version = 2
        indexes: ClassVar = (
            Index("country", "-population", where=Q(population__gt=0), include=("name", "kind"), name="big"),
            Index("address.city"),
            Index("branches.city", "-id", name="branches"),
            Index("country", "names", nulls="skip", name="country_names"),
            Index("codes", store="record", name="copies"),
            Index("name", key=initial, version=1, name="initial"),
            Index("name", key=words, version=1, name="words", include=("score",)),
            Index("initial", "-kind", name="initial_kind"),
            UniqueConstraint("aliases"),
            UniqueConstraint(
                "country",
                "address.zip",
                where=~Q(address__zip=None) & (Q(kind=Kind.CITY) | Q(population__range=(10, 20))),
                name="zips",
            ),
            AggregateIndex(),
            AggregateIndex("country", sums=("population", "area", "age"), name="per_country"),
            AggregateIndex("names", where=Q(kind=Kind.CITY), name="per_name"),
        )


def second_initial(name: str) -> str:
    return name[:2].upper()


class NewPlace(Place, collection="places"):
    """The second release: another function, a condition that changed, another sum."""

    name: Annotated[str, Unique(key=str.casefold, include=("name", "score"))]

    class Meta:
        schema_version = 2
        indexes: ClassVar = (
            *(index for index in Place.Meta.indexes if index.name not in ("big", "initial", "per_country")),
            Index("country", "-population", where=Q(population__gte=10), include=("name", "kind"), name="big"),
            Index("name", key=second_initial, version=2, name="initial"),
            AggregateIndex("country", sums=("population",), name="per_country"),
        )


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Place)
    places = db[Place]
    yield "1_empty"
    places.insert(
        Place(
            id=1,
            name="Zürich am See",
            country="CH",
            population=2**33 + 5,
            area=-(2**40) - 3,
            age=timedelta(days=-1, microseconds=1),
            score=-0.5,
            names=["Zurigo", "Turicum", "ZURIGO"],
            codes={7, -2},
            aliases=("zh", "zrh"),
            address=Address(city="Zürich", zip="8001"),
            branches=[Address(city="Uster"), Address(city="Baden", zip="5400"), Address(city="Uster")],
        )
    )
    places.create(id=2, name="Bern", country="CH", population=0, area=None, codes=set(), address=None, names=["Berna"])
    places.create(
        id=3,
        name="Ardez",
        country="CH",
        kind=Kind.VILLAGE,
        population=15,
        area=-4,
        aliases=("ar",),
        address=Address(city="Ardez", zip="7546"),
    )
    places.create(id=4, name="Wien", country="AT", population=-7, area=2**62, names=["Vienna", "Bécs"])
    places.create(id=5, name="Oslo", country="NO", population=1)
    yield "2_records"
    places.patch(1, names=["Zurigo"], country="LI", codes={7, 8}, population=12, aliases=("zrh",))
    places.patch(3, address=Address(city="Ardez", zip=None), population=0)
    places.remove(5)
    yield "3_changed"
    new = database(engine, NewPlace, tokens="build")
    engine.stop = sets(build_key("places", "per_country", 2), 2)
    try:
        new.build_indexes(NewPlace)
    except Stopped:
        yield "4_half_a_build"
    engine.stop = lambda _: False
    new.build_indexes(NewPlace)
    new[NewPlace].create(id=6, name="Rom", country="IT", population=2_800_000, names=["Roma"], score=1.5)
    yield "5_rebuilt"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
