"""The crowd once more, whose writers do part of their work in transactions, beside builders and single writes.

To see one run step by step:

    python -m tests.interleaving.crowd_of_transactions SEED
"""

from __future__ import annotations

import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from kvmodels import AsyncTransaction
from tests.interleaving.crowd import COUNTERS, KEYS, MORE_KEYS, Crowd, replay
from tests.interleaving.verdict import Deed

PATIENCE = 1_000
"""More retries than any transaction of a crowd needs."""


class TransactionCrowd(Crowd):
    """Writers of transactions over several records, readers of one state, and everybody of the first crowd."""

    verbs_drawn: tuple[str, ...] = (
        "create",
        "bulk",
        "patch",
        "hit",
        "save",
        "remove",
        "renew",
        "tx_create",
        "tx_hit",
        "tx_save",
        "tx_replace",
        "tx_move",
        "tx_swap",
        "tx_audit",
    )

    async def _transact(self, deed: Deed, body: Callable[[AsyncTransaction], Awaitable[Any]]) -> Any:
        return await self.processes[deed.client].transactional(PATIENCE)(body)()

    async def _tx_create(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        """Two at once, the second with what a query of the same transaction says."""
        keys = chance.sample(KEYS + MORE_KEYS, 2)
        persons = [model(id=key, **self._values(chance, model)) for key in keys]
        lifetime = chance.choice(self.lifetimes)

        async def body(tx: AsyncTransaction) -> None:
            await tx[model].insert(persons[0], expire_in=lifetime)
            city = persons[0].city
            await tx[model].insert(persons[1])
            living = [one.id for one in await tx[model].filter(city=city).to_list()]
            if keys[0] not in living or (persons[1].city == city) != (keys[1] in living):
                self.faults.append(f"{deed.client} has created {keys} and finds {living} in {city}")

        await self._transact(deed, body)
        for person in persons:
            deed.wrote[person.versionstamp, person.id] = None

    async def _tx_hit(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        key, more, visited = chance.choice(COUNTERS), chance.randint(1, 9), chance.choice(KEYS)
        deed.hits = key, more

        async def body(tx: AsyncTransaction) -> None:
            person = await tx[model].get(key)
            visitor = await tx[model].get_or_none(visited)
            if visitor is not None:
                await tx[model].patch(visited, zone="s" if visitor.zone == "n" else "n")
            for _ in range(more):
                person.hits += 1
                await tx[model].save(person)

        await self._transact(deed, body)

    async def _tx_save(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        key, values = chance.choice(KEYS), self._values(chance, model)
        loaded: list[str | None] = []

        async def body(tx: AsyncTransaction) -> Any:
            person = await tx[model].get_or_none(key)
            if person is None:
                return None
            loaded[:] = [person.versionstamp]
            for name, value in values.items():
                setattr(person, name, value)
            return await tx[model].save(person)

        person = await self._transact(deed, body)
        deed.writes = person is not None
        if person is not None:
            deed.wrote[person.versionstamp, person.id] = loaded[0]

    async def _tx_replace(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        """One goes, another one takes the address; in any order."""
        gone, new = chance.sample(KEYS, 2)
        first = chance.random() < 0.5
        values = self._values(chance, model)

        async def body(tx: AsyncTransaction) -> bool:
            old = await tx[model].get_or_none(gone)
            if old is None or await tx[model].get_or_none(new) is not None:
                return False
            if first:
                await tx[model].remove(gone)
            await tx[model].create(id=new, **{**values, "email": old.email, "phone": old.phone})
            if not first:
                await tx[model].remove(old)
            if old.email is not None and (await tx[model].get(email=old.email)).id != new:
                self.faults.append(f"{deed.client} has given {old.email} to {new} and does not find it there")
            return True

        deed.writes = await self._transact(deed, body)

    async def _tx_move(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        """Everybody of a city to another one; nobody of those that were read is left behind."""
        source, target = chance.sample("xyz", 2)

        async def body(tx: AsyncTransaction) -> int:
            found = await tx[model].filter(city=source).to_list()
            for person in found:
                person.city = target
                await tx[model].save(person)
            left = await tx[model].filter(city=source).count()
            if left:
                self.faults.append(f"{deed.client} has moved all from {source} and still finds {left}")
            return len(found)

        deed.writes = await self._transact(deed, body) > 0

    async def _tx_swap(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        one, other = chance.sample(KEYS, 2)
        field = chance.choice(self.swapped)

        async def body(tx: AsyncTransaction) -> bool:
            found = await tx[model].in_bulk([one, other])
            if len(found) < 2:
                return False
            mine, theirs = getattr(found[one], field), getattr(found[other], field)
            await tx[model].patch(one, **{field: theirs})
            await tx[model].patch(other, **{field: mine})
            return True

        deed.verb = "swap"  # the judge knows that it is never refused
        deed.writes = await self._transact(deed, body)
        self.verbs["tx_swap"] += 1

    async def _tx_audit(self, deed: Deed, people: Any, model: type[Any], chance: random.Random) -> None:
        """Read everybody in two ways; both must be of one state."""

        async def body(tx: AsyncTransaction) -> None:
            everybody = {person.id: person.city for person in await tx[model].all().to_list()}
            for city in "xyz":
                living = sorted(person.id for person in await tx[model].filter(city=city).to_list())
                if living != sorted(name for name, at in everybody.items() if at == city):
                    self.faults.append(f"{deed.client} finds {living} in {city} among {everybody}")

        deed.writes = False
        await self._transact(deed, body)


if __name__ == "__main__":
    replay(int(sys.argv[1]), TransactionCrowd)
