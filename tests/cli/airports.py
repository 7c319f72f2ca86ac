"""A small store of airports, with the program that declares it, on SQLite and LMDB."""

from __future__ import annotations

PROGRAM = """
import os
from datetime import date
from enum import Enum
from typing import Annotated
from kvmodels import (
    CASCADE, AggregateIndex, AsyncDatabase, Database, Field, ForeignKey, Index, Indexed, KvModel, MultiIndexed,
    PrimaryKey, Q, Unique, Version,
)

class Size(Enum):
    SMALL = "small"
    LARGE = "large"

class Country(KvModel, collection="countries"):
    code: PrimaryKey[str]
    name: Unique[str]

class Airport(KvModel, collection="airports"):
    icao: PrimaryKey[str]
    country: Annotated[ForeignKey[str, Country], CASCADE]
    city: Annotated[str, Indexed(key=str.casefold)]
    elevation: int
    size: Indexed[Size] = Field(default=Size.SMALL)
    opened: date | None = None
    services: MultiIndexed[list[str]] = Field(default=[])
    runway: float = 0.0
    revision: int = Version()
    class Meta:
        indexes = (
            Index("country", "-elevation", name="highest"),
            Index("elevation", where=Q(opened__gte=date(2000, 1, 1)), name="modern"),
            AggregateIndex("country"),
        )

MODELS = [Country, Airport]
db = AsyncDatabase(os.environ["AIRPORTS"], models=MODELS)

def fill():
    with Database(os.environ["AIRPORTS"], models=MODELS) as store:
        store[Country].bulk_create([Country(code="CH", name="Switzerland"), Country(code="IS", name="Iceland")])
        store[Airport].bulk_create([
            Airport(icao="BIRK", country="IS", city="Reykjavík", elevation=45, opened=date(1940, 10, 1)),
            Airport(icao="LSGG", country="CH", city="Genève", elevation=1411, size=Size.LARGE, services=["rail"]),
            Airport(icao="LSZB", country="CH", city="Bern", elevation=1674, opened=date(2004, 1, 2), runway=1730.5),
            Airport(icao="LSZH", country="CH", city="Zürich", elevation=1416, size=Size.LARGE,
                    services=["rail", "tram"]),
        ])
        store.kv.set(("settings", "dark"), True)
"""
