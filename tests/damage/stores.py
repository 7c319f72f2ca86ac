"""Small stores with one record that has every value and one that has none, and what each holds in every index."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvmodels.api._sync.database import Database
from kvmodels.core.operations import Entry
from tests.oracle import Fault, audit, read_engine, spec_of
from tests.zoo import Animal
from tests.zoo_kinds import BARE as BARE_RESIDENT
from tests.zoo_kinds import FULL as FULL_RESIDENT
from tests.zoo_kinds import OTHER as OTHER_RESIDENT
from tests.zoo_kinds import Guest, Resident

SPEC = spec_of(Animal)
INDEXES = {index.name: index for index in SPEC.indexes}
FULL = ("east", 1)
BARE = ("east", 2)
OTHER = ("west", 1)


@dataclass
class Zoo:
    """An open database of animals."""

    db: Database
    held: dict[tuple[str, int], dict[str, Entry]] = field(default_factory=dict)
    """By primary key and index, the entry of a record."""

    @property
    def raw(self) -> Any:
        """The key-value API that is allowed to damage models."""
        return self.db.kv.unsafe()

    def faults(self) -> list[Fault]:
        """Return the findings of the oracle."""
        return audit(read_engine(self.db._engine), [SPEC])

    def add(self, **values: Any) -> None:
        """Create an animal and note its entries."""
        before = {repr(entry.key) for entry in self.db.kv.list(prefix=())}
        animal = self.db[Animal].create(**values)
        new = [entry for entry in self.db.kv.list(prefix=()) if repr(entry.key) not in before]
        prefixes = {f"animals_by_{name}": name for name in INDEXES}
        self.held[(animal.park, animal.number)] = {
            prefixes[entry.key[0]]: entry for entry in new if entry.key[0] in prefixes
        }


def open_zoo(url: str) -> Zoo:
    """A new store with three animals."""
    zoo = Zoo(Database(url, models=[Animal], durability="relaxed"))
    zoo.add(
        park="east", number=1, species="lynx", name="Ada", weight=20.5, chip="c1", passport="p1", berth="b1", tag="t1",
        keeper="Kim", vet="Vic", diet="meat",
    )  # fmt: skip
    zoo.add(park="east", number=2, species="lynx", name="Bo", weight=18.0)
    zoo.add(
        park="west", number=1, species="ibex", name="Cy", weight=90.0, chip="c3", passport="p3", berth="b3", tag="t3",
        keeper="Lou", vet="Val", diet="hay",
    )  # fmt: skip
    assert zoo.faults() == []
    return zoo


KINDS_SPEC = {Resident: spec_of(Resident), Guest: spec_of(Guest)}
ENTRY_INDEXES = [index.name for index in spec_of(Guest).indexes]
"""The indexes of a resident that have entries; the others are counters."""


@dataclass
class House:
    """An open database of residents or guests: every newer kind of index."""

    db: Database
    model: Any

    @property
    def raw(self) -> Any:
        """The key-value API that is allowed to damage models."""
        return self.db.kv.unsafe()

    @property
    def name(self) -> str:
        """The collection."""
        return KINDS_SPEC[self.model].name

    def faults(self) -> list[Fault]:
        """Return the findings of the oracle."""
        return audit(read_engine(self.db._engine), [KINDS_SPEC[self.model]])

    def entries(self, index: str, pk: tuple[str, int] | None = None) -> list[Entry]:
        """The entries of an index, of one record or of all, in their order."""
        found = list(self.db.kv.list(prefix=(f"{self.name}_by_{index}",)))
        if pk is None:
            return found
        mine = {repr(list(pk)), repr(pk)}
        return [entry for entry in found if not mine.isdisjoint(_owners(entry))]

    def counters(self, index: str) -> list[Entry]:
        """The counters of an index, in their order."""
        return list(self.db.kv.list(prefix=("__kvmodels__", "counter", self.name, index)))


def _owners(entry: Entry) -> set[str]:
    """Return the parts of an entry that may be a primary key: the end of its key, its value, or its first part."""
    value = entry.value
    return {repr(entry.key[-2:]), repr(value), repr(value[0]) if isinstance(value, list) and value else ""}


def open_house(url: str, model: Any = Resident) -> House:
    """A new store with three residents, or guests."""
    house = House(Database(url, models=[model], durability="relaxed"), model)
    house.db[model].create(park="east", number=1, **FULL_RESIDENT)
    house.db[model].create(park="east", number=2, **BARE_RESIDENT)
    house.db[model].create(park="west", number=1, **OTHER_RESIDENT)
    assert house.faults() == []
    return house
