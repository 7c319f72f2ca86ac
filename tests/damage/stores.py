"""A small store with one record that has every value and one that has none, and what each holds in every index."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvmodels.database import Database
from kvmodels.operations import Entry
from tests.oracle import Fault, audit, read_engine, spec_of
from tests.zoo import Animal

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
        """What the oracle says."""
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


def open_zoo(engine: str, folder: Path) -> Zoo:
    """A new store with three animals on the engine ``memory`` or ``sqlite``."""
    url = "memory://" if engine == "memory" else str(folder / "zoo.db")
    zoo = Zoo(Database(url, models=[Animal], durability="relaxed" if engine == "sqlite" else "commit"))
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
