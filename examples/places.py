"""34,000 made-up places with names in many scripts: load them, and ask what a map asks, by index and never by scan.

Rules of this module: the places come from a seed, so that every run has the same ones; the program takes no input but
the URL of a store and a number of places. Every query is printed with its plan.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from kvmodels import (
    AggregateIndex,
    Count,
    Database,
    Field,
    Index,
    Indexed,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    Repository,
    Sum,
)

COUNT = 34_000
SEED = 20_26
MOST_NAMES = 60
BATCH = 500

SCRIPTS: dict[str, tuple[str, ...]] = {
    "latin": ("Saint", "ber", "Gro", "ß", "heim", "É", "toi", "le", "Mün", "ster", "ñez", "Ço", "ruk", "Ł", "ódź", "a"),
    "turkish": ("İs", "tan", "bul", "Iğ", "dır", "şe", "hir", "Gö", "ller"),
    "greek": ("Αθή", "να", "Πύ", "λος", "Μό", "ρος", "Θεσ", "σα", "λία"),
    "cyrillic": ("Но", "во", "град", "ский", "Бе", "ло", "Щёл", "ково", "Київ", "ь"),
    "armenian": ("Եր", "և", "ան", "Գյում", "րի"),
    "georgian": ("თბი", "ლი", "სი", "ქუ", "თაი"),
    "hebrew": ("תל", "אביב", "ירו", "שלים", "חי"),
    "arabic": ("الق", "اهرة", "بغ", "داد", "مد", "ينة", "دم", "شق"),
    "devanagari": ("दि", "ल्ली", "मुं", "बई", "पु", "र", "नग"),
    "thai": ("กรุง", "เทพ", "เชียง", "ใหม่"),
    "han": ("北", "京", "上", "海", "東", "山", "口", "大", "阪", "水", "𠮷"),
    "kana": ("とう", "きょう", "サッ", "ポロ", "かわ"),
    "hangul": ("서", "울", "부", "산", "대", "구"),
}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
COUNTRIES = tuple(a + b for a in LETTERS for b in LETTERS[::3])[:200]
ZONES = ("Pacific/Apia", "America/Lima", "Europe/Bern", "Africa/Cairo", "Asia/Tokyo", None)
KINDS = ("city", "town", "village", "peak", "lake")

Kind = Literal["city", "town", "village", "peak", "lake"]


class Position(BaseModel):
    """Where a place is, in degrees."""

    latitude: float
    longitude: float
    zone: str | None = None


class Admin(BaseModel):
    """To which parts of its country a place belongs."""

    region: str
    district: str | None = None


def initial(name: str) -> str:
    """The first character of a name, in capital letters if its script has them."""
    return name[:1].upper()


class Place(KvModel, collection="places"):
    """A place: a folded name, up to 60 other names, and where it lies."""

    id: PrimaryKey[int]
    name: Annotated[str, Indexed(key=str.casefold)]
    names: Annotated[list[str], MultiIndexed(key=str.casefold, max_fan_out=MOST_NAMES)] = Field(default_factory=list)
    country: str
    kind: Kind
    population: int = 0
    elevation: Indexed[int | None] = Field(default=None)
    position: Position
    admin: Admin | None = None

    class Meta:
        indexes = (
            Index("country", "-population", include=("name",)),
            Index("names", "-population", name="by_name", max_fan_out=MOST_NAMES),
            Index("kind", "-population", where=Q(population__gt=0), name="inhabited"),
            Index("country", "admin.region", "admin.district", name="region"),
            Index("position.zone"),
            Index("name", key=initial, version=1, name="initial"),
            AggregateIndex("country", sums=("population",), name="per_country"),
            AggregateIndex("kind", name="per_kind"),
        )


def rows(count: int = COUNT, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """The fields of the first ``count`` places."""
    chance = random.Random(seed)
    weights = list(accumulate(1 / (rank + 1) for rank in range(len(COUNTRIES))))
    for number in range(count):
        country = chance.choices(COUNTRIES, cum_weights=weights)[0]
        kind = chance.choice(KINDS)
        yield {
            "id": number,
            "name": name_in(chance, "latin"),
            "names": names(chance),
            "country": country,
            "kind": kind,
            "population": population(chance, kind),
            "elevation": chance.choice((None, chance.randrange(-400, 5_000))),
            "position": {
                "latitude": round(chance.uniform(-90, 90), 4),
                "longitude": round(chance.uniform(-180, 180), 4),
                "zone": chance.choice(ZONES),
            },
            "admin": admin(chance),
        }


def names(chance: random.Random) -> list[str]:
    """From 0 to 60 other names, most often few; some differ only in capital letters, and some come twice."""
    count = MOST_NAMES if chance.random() < 0.002 else min(MOST_NAMES, int(chance.expovariate(1 / 3.5)))
    found = [name_in(chance, chance.choice(tuple(SCRIPTS))) for _ in range(count)]
    if len(found) > 2 and chance.random() < 0.2:
        found[-1] = chance.choice((found[0], found[0].upper(), found[0].casefold()))
    return found


def name_in(chance: random.Random, script: str) -> str:
    """A name of two or three syllables of a script."""
    return "".join(chance.choices(SCRIPTS[script], k=chance.choice((2, 2, 3))))


def population(chance: random.Random, kind: str) -> int:
    """None at all for nature and a third of the rest; else a long tail, in round numbers, so that many are equal."""
    if kind in ("peak", "lake") or chance.random() < 0.3:
        return 0
    people = int(50 * chance.paretovariate(0.7)) % 30_000_000
    unit: int = 10 ** max(0, len(str(people)) - 2)
    return people // unit * unit


def admin(chance: random.Random) -> dict[str, str | None] | None:
    """A region, often a district of it; nothing for every tenth place."""
    if chance.random() < 0.1:
        return None
    region = f"{chance.randrange(12):02}"
    return {"region": region, "district": f"{region}{chance.randrange(8)}" if chance.random() < 0.6 else None}


def load(places: Repository[Place], count: int = COUNT, seed: int = SEED) -> None:
    """Write the places, a batch of them in each commit; those that are there already are left alone."""
    generated = rows(count, seed)
    while batch := [Place.model_validate(row) for row in islice(generated, BATCH)]:
        places.bulk_create(batch, on_conflict="ignore")


def tell(places: Repository[Place]) -> Iterator[str]:
    """Return the questions of a map, each with its answer and its plan."""
    largest = places.filter(country="AA").order_by("-population")[:5]
    yield "the largest places of a country, from the entries alone"
    yield f"  {list(largest.values_list('name', 'population'))}"
    yield str(largest.explain())
    found = places.filter(names__contains="ΑΘΉΝΑ").order_by("-population")[:5]
    yield "places with a name, whatever its capital letters"
    yield f"  {[(place.id, place.population) for place in found]}"
    yield str(found.explain())
    begun = places.filter(names__any__startswith="новоград")[:5]
    yield "places with a name that begins so"
    yield f"  {[place.id for place in begun]}"
    yield str(begun.explain())
    several = places.filter(country__in=["AA", "AD", "BA"]).order_by("-population")[:5]
    yield "the largest places of several countries"
    yield f"  {[(place.country, place.population) for place in several]}"
    yield str(several.explain())
    yield "places and people per country, from one counter each"
    groups = places.group_by("country").aggregate(places=Count(), people=Sum("population"))
    yield f"  {list(islice(groups, 3))}"


def main(url: str = "memory://", count: int = COUNT) -> None:
    """Load the places and print the answers."""
    with Database(url, models=[Place]) as db:
        places = db[Place]
        load(places, count)
        print(f"{places.count():,} places")
        for line in tell(places):
            print(line)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory://", int(sys.argv[2]) if len(sys.argv) > 2 else COUNT)
