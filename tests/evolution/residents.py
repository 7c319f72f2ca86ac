"""Residents before and after a release that adds every kind of index to them, and what writers do with them."""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Any

from kvmodels import Field, GeoPoint, KvModel, PrimaryKey, Vector
from tests.zoo_kinds import Habitat, Meal, Resident


class FirstResident(KvModel, collection="residents"):
    """The release before: the same fields, no index."""

    park: PrimaryKey[str]
    number: PrimaryKey[int]
    name: str
    handle: str | None = None
    species: str
    age: int = 0
    weight: int | None = None
    stay: timedelta = timedelta(0)
    tags: list[str] = Field(default_factory=list)
    chips: frozenset[str] | None = None
    born: date | None = None
    habitat: Habitat | None = None
    meals: list[Meal] = Field(default_factory=list)
    ward: str | None = None
    nick: str | None = None
    note: str = ""
    visits: int | None = None
    spot: GeoPoint | None = None
    arrives: date | None = None
    leaves: date | None = None
    looks: Vector | None = None


def key_of(n: int) -> tuple[str, int]:
    """The primary key of the n-th resident."""
    return ("east", "west")[n % 2], n


def resident(n: int, rng: random.Random) -> dict[str, Any]:
    """Values that are drawn, except that unique ones are those of n, in one form or another, or None."""
    chips = frozenset(rng.sample([f"{n}-a", f"{n}-b", f"{n}-c"], rng.randrange(1, 4)))
    return {
        "name": rng.choice(["Ada Ada", "ADA LI", "bo", "Cy Li"]),
        "handle": rng.choice([None, f"H{n}", f"h{n}"]),
        "species": rng.choice(["lynx", "ibex"]),
        "age": rng.choice([0, 0, 3, 4, 5]),
        "weight": rng.choice([None, -7, 2**40 + n]),
        "stay": timedelta(seconds=rng.randrange(-5, 50)),
        "tags": rng.choices(["a", "b", "c"], k=rng.randrange(4)),
        "chips": rng.choice([None, frozenset(), chips]),
        "born": rng.choice([None, date(2020, 1, 1) + timedelta(days=n % 366)]),
        "habitat": rng.choice([None, Habitat(zone="rock"), Habitat(zone="lake", climate="dry")]),
        "meals": [Meal(food=food) for food in rng.sample(["hay", "fish", "leaf"], rng.randrange(3))],
        "ward": rng.choice([None, f"w{n}"]),
        "nick": rng.choice([None, "n"]),
        "note": rng.choice(["", "x"]),
        "visits": rng.choice([None, 0, 5, 127]),
        "spot": rng.choice([None, GeoPoint(lat=46.95, lon=7.44), GeoPoint(lat=46.96, lon=7.44)]),
        "arrives": rng.choice([None, date(2024, 1, 1), date(2024, 1, 2)]),
        "leaves": rng.choice([None, date(2024, 1, 3), date(2024, 1, 9)]),
        "looks": rng.choice([None, Vector([1, 2, 3]), Vector([-1, 0.5, 0])]),
    }


def change(residents: Any, rng: random.Random, keys: int) -> None:
    """One random write, in a range of keys that all writers share."""
    n = rng.randrange(keys)
    values, (park, number) = resident(n, rng), key_of(n)
    kind = rng.randrange(6)
    if kind == 0:
        residents.remove((park, number))
    elif kind == 1:
        residents.get_or_create(park=park, number=number, defaults=values)
    elif kind == 2:
        residents.save(residents.get((park, number)).model_copy(update=values))
    else:
        some = rng.sample(sorted(values), rng.randint(1, 5))
        residents.patch((park, number), **{name: values[name] for name in some})


__all__ = ["FirstResident", "Resident", "change", "key_of", "resident"]
