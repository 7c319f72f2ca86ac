"""Runs of one story of concurrent clients under many seeds.

Rules of this module: each seed has an interleaving and a store of its own, and the first failure ends the exploration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.retry_policy import DEFAULT_RETRY, RetryPolicy
from kvmodels.limits import Limits
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.schedules import NO_FAULTS, FaultRates


def explore_races(
    story: Callable[[Interleaving], object],
    *,
    seeds: int | Iterable[int] = 200,
    faults: FaultRates = NO_FAULTS,
    retry: RetryPolicy = DEFAULT_RETRY,
    limits: Limits = Limits.EMBEDDED,
    errors: Iterable[type[Exception]] = (),
) -> None:
    """Run a story under many seeds, and show the seed and the history of the first failure.

    The story gets a new ``Interleaving`` with an empty store. It adds clients, calls ``run()``, and asserts what must
    hold in any order. An exception of the story ends the exploration.

    Args:
        story: a function that fails if the order of the steps leads to a wrong result.
        seeds: the number of seeds, from 0 on, or the seeds themselves.
        faults: the fault rates of every run.
        retry: the retry policy of every write.
        limits: the limits of the engine.
        errors: the exceptions that a client may end with, those of the library included, such as
            ``UniqueViolationError``.

    Raises:
        Exception: the first exception of the story, or the first one of a client that is not in ``errors``, with its
            seed and the history of the run as a note.
        InvalidArgumentError: there are no seeds, the story ran no client, or ``errors`` has something else than
            exception classes.

    Examples:
        A purchase that reads the stock, and stores a new number without a check, sells the last piece twice:

        >>> from kvmodels import KvModel, PrimaryKey
        >>> class Item(KvModel, collection="items"):
        ...     id: PrimaryKey[int]
        ...     stock: int = 1
        >>> class SoldOut(Exception):
        ...     pass
        >>> async def buy(process):
        ...     item = await process[Item].get(1)
        ...     if item.stock == 0:
        ...         raise SoldOut
        ...     await process[Item].patch(1, stock=item.stock - 1)
        >>> def two_buyers(race):
        ...     process = race.process(Item)
        ...     race.at_once(process[Item].create(id=1))
        ...     race.add("ada", buy(process))
        ...     race.add("bob", buy(process))
        ...     outcomes = race.run().outcomes.values()
        ...     assert sum(outcome.error is None for outcome in outcomes) == 1, "one piece, one buyer"
        >>> try:
        ...     explore_races(two_buyers, errors=[SoldOut])
        ... except AssertionError as error:
        ...     print(error.__notes__[0].splitlines()[0])
        seed 2
    """
    allowed = tuple(errors)
    for seed in _each_seed(seeds):
        race = Interleaving(seed, faults=faults, retry=retry, limits=limits, errors=allowed)
        try:
            story(race)
            _require_outcomes(race, allowed)
        except Exception as error:
            history = str(race.history)
            if history not in getattr(error, "__notes__", ()):
                error.add_note(history)
            raise


def _require_outcomes(race: Interleaving, allowed: tuple[type[Exception], ...]) -> None:
    """Raise the unexpected error of a client; a test that ignores it would test nothing."""
    outcomes = race.history.outcomes.values()
    if not outcomes:
        raise InvalidArgumentError(
            "the story has run no client",
            argument="story",
            hint="Add clients by race.add(name, coroutine), and call race.run().",
        )
    for outcome in outcomes:
        if outcome.error is not None and not isinstance(outcome.error, allowed):
            raise outcome.error


def _each_seed(seeds: int | Iterable[int]) -> Sequence[int]:
    chosen = range(seeds) if isinstance(seeds, int) else tuple(seeds)
    if not chosen:
        raise InvalidArgumentError(
            "an exploration without seeds tests nothing",
            argument="seeds",
            value=seeds,
            hint="Give the number of seeds, or the seeds in a list.",
        )
    return chosen
