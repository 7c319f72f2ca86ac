"""A crowd of an older and a newer release, whose works get foreign keys to poets while everybody goes on.

To see one run step by step:

    python -m tests.interleaving.crowd_of_late_references SEED
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from kvmodels import (
    AsyncTransaction,
    DoesNotExist,
    IntegrityError,
    RetryPolicy,
    SchemaMismatchError,
    StaleObjectError,
)
from kvmodels.errors import KvModelsError
from kvmodels.flows.evolution.violations import list_violations, resolve
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates, StepHistory
from tests.interleaving.late_references import (
    NEWER,
    OLDER,
    WORKS,
    OldPoem,
    Poem,
    Poet,
    enforced_indexes,
    late_reference_faults,
    stray_guards,
)
from tests.interleaving.soaking import faults

POETS, NAMES = "vwx", "mno"
DEEDS = 5
PATIENT = RetryPolicy(attempts=60, deadline_s=600)
REFUSALS = IntegrityError, StaleObjectError, DoesNotExist, SchemaMismatchError


class Release(NamedTuple):
    """One process, and the classes of its works."""

    process: Process
    models: tuple[type[Any], ...]

    @property
    def poem(self) -> type[Any]:
        """The class of poems."""
        return self.models[1]


async def _deed(release: Release, chance: random.Random) -> None:
    """Do one thing; a refusal by a constraint, or of a release, is an answer too."""
    process, model = release.process, chance.choice(release.models[1:])
    poets, works, poems = process[Poet], process[model], process[release.poem]
    poet, other, name = chance.choice(POETS), chance.choice(POETS), chance.choice(NAMES)

    async def moved(tx: AsyncTransaction) -> None:
        await tx[Poet].get_or_create(id=other)
        await tx[model].get_or_create(id=name, defaults={"poet": poet})
        await tx[model].patch(name, poet=other)
        await tx[Poet].remove(poet)

    verbs: tuple[Any, ...] = (
        lambda: works.create(id=name, poet=poet),
        lambda: works.patch(name, poet=other),
        lambda: works.save(model(id=name, poet=poet), force=True),
        lambda: works.remove(name),
        lambda: works.rename(name, chance.choice(NAMES)),
        lambda: works.bulk_create([model(id=one, poet=poet) for one in NAMES], on_conflict="ignore"),
        lambda: works.all().allow_scan().update(poet=other),
        lambda: poems.patch(name, title=other),
        lambda: poems.all().allow_scan().update(title=other),
        lambda: poets.create(id=poet),
        lambda: poets.patch(poet, name=name),
        lambda: poets.remove(poet),
        lambda: poets.rename(poet, other),
        lambda: poets.all().delete(on_error="collect"),
        lambda: process.transactional(20)(moved)(),
    )
    with suppress(*REFUSALS):
        await chance.choice(verbs)()


async def _client(release: Release, seed: str) -> None:
    chance = random.Random(seed)
    for _ in range(DEEDS):
        await _deed(release, chance)


async def _builder(process: Process) -> None:
    with suppress(SchemaMismatchError):  # another process has dropped what this one builds
        await process.apply(*WORKS)


async def _dropper(process: Process) -> None:
    """Give one foreign key up, and take it up again."""
    with suppress(SchemaMismatchError):
        await process.drop_index(Poem, "poet")
        await process.apply(*WORKS)


async def _resolver(process: Process) -> None:
    for model in WORKS:
        with suppress(SchemaMismatchError):
            await process.run(resolve(process.context, process.schema(model), None))


def crowd(seed: int, rates: FaultRates) -> tuple[list[str], StepHistory]:
    """Run a crowd; what is wrong, and the story."""
    chance = random.Random(f"late {seed}")
    test = Interleaving(seed, faults=rates, retry=PATIENT)
    older = chance.choice(OLDER)
    old = [test.process(*older) for _ in range(2)]
    for poet in POETS[:2]:
        test.at_once(old[0][Poet].create(id=poet))
    for model in older[1:]:
        for name in NAMES[: chance.randint(1, 3)]:
            test.at_once(old[0][model].create(id=name, poet=chance.choice(POETS)))
    new = [test.process(*NEWER) for _ in range(5)]
    releases = [Release(old[1], older), *(Release(process, NEWER) for process in new[:2])]
    for number, release in enumerate(releases):
        test.add(f"client{number}", _client(release, f"{seed}-{number}"))
    test.add("poets", _client(Release(old[0], (Poet, OldPoem)), f"{seed}-poets"))
    for number, process in enumerate(new[2:4]):
        test.add(f"build{number}", _builder(process))
    drops = chance.random() < 0.3
    test.add("resolve", (_dropper if drops else _resolver)(new[4]))
    history = test.run()
    found = [*late_reference_faults(test.engine), *(() if drops else stray_guards(test.engine))]
    found += [
        f"{name} raised {one.error!r}" for name, one in history.outcomes.items() if isinstance(one.error, KvModelsError)
    ]
    return [*found, *_end(test, new[4])], history


def _end(test: Interleaving, process: Process) -> Iterable[str]:
    """Resolve every violation by removing its record; then every foreign key must be readable."""
    test.at_once(process.apply(*WORKS))
    for model in WORKS:
        schema = process.schema(model)
        for violation in test.at_once(process.run(list_violations(process.context, schema, None, 100))):
            test.at_once(process[model].remove(violation.key))
    test.at_once(process.apply(*WORKS))
    yield from late_reference_faults(test.engine)
    for name, index in enforced_indexes(test.engine).items():
        if index.state != "readable":
            yield f"{name} ends as {index.state}"
    report = test.at_once(process.check(repair=True))
    yield from stray_guards(test.engine)
    yield from (f"the check reports {one}" for one in report.dangling_references)


if __name__ == "__main__":
    print(*reversed(crowd(int(sys.argv[1]), faults(int(sys.argv[1])))), sep="\n")
