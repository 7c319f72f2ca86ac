"""The past equals an oracle at random moments after many random writes, by key and by filter."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from kvmodels import Database, History, Indexed, KvModel, PrimaryKey
from tests.kv.stores import Clock

KEYS = range(30)


class Part(KvModel, collection="parts"):
    id: PrimaryKey[int]
    size: Indexed[int]
    text: str = ""

    class Meta:
        history = History()


State = dict[int, tuple[int, str]]
"""The stored values of each key."""


def written(db: Database, clock: Clock, chance: random.Random, writes: int) -> list[tuple[int, State]]:
    """Make random writes and return the state after each, with its time; several may have the same time."""
    parts, state = db[Part], dict[int, tuple[int, str]]()
    states: list[tuple[int, State]] = [(clock.ms, {})]
    for number in range(writes):
        clock.ms += chance.choice((0, 1, 7))
        key, size, text = chance.choice(KEYS), chance.randrange(4), f"{number}"
        if key not in state:
            parts.create(id=key, size=size, text=text)
            state[key] = size, text
        elif chance.random() < 0.2:
            parts.remove(key)
            del state[key]
        elif chance.random() < 0.1:
            parts.filter(size=size).update(text=text)
            state |= {one: (size, text) for one, values in state.items() if values[0] == size}
        else:
            parts.patch(key, size=size, text=text)
            state[key] = size, text
        states.append((clock.ms, dict(state)))
    return states


@pytest.mark.parametrize(
    ("writes", "moments"), [(150, 25), pytest.param(10_000, 1_000, marks=pytest.mark.soak)], ids=["few", "many"]
)
def test_the_past_at_random_moments_equals_an_oracle(url_of: Callable[[str], str], writes: int, moments: int):
    clock, chance = Clock(), random.Random(writes)
    with Database(url_of("memory"), models=[Part], clock=clock) as db:
        states = written(db, clock, chance, writes)
        clock.ms += 1_000
        for _ in range(moments):
            time = chance.randrange(states[0][0], clock.ms)
            expected = next(state for at, state in reversed(states) if at <= time)
            past = db[Part].as_of(datetime.fromtimestamp(time / 1_000, UTC))
            found = [None if one is None else (one.size, one.text) for one in past.get_many(KEYS)]
            assert found == [expected.get(key) for key in KEYS], time
            size = chance.randrange(4)
            chosen = {one.id: (one.size, one.text) for one in past.filter(size=size).allow_scan()}
            assert chosen == {key: values for key, values in expected.items() if values[0] == size}, time
