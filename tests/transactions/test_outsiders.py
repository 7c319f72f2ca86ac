"""When a call reports its keys as written by others that take no turns: after it has lost several times, not before."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import Database, KvModel, PrimaryKey, Transaction
from kvmodels.core.keys import encode_key
from tests.write_costs import fewest_instructions

KEY = encode_key(("meters", 1))


class Meter(KvModel, collection="meters"):
    id: PrimaryKey[int]
    number: int = 0


def reported(defeats: int, *, transactional: bool) -> list[bytes]:
    """The keys that a call reports that is defeated so often."""
    found: list[bytes] = []
    with Database("memory://outsiders", models=[Meter]) as db, Database("memory://outsiders", models=[Meter]) as other:
        db[Meter].create(id=1)
        context: Any = db._core.context
        context.turns.on_outsiders = found.extend
        left = [defeats]

        def defeat() -> None:
            if left[0]:
                left[0] -= 1
                meter = other[Meter].get(1)
                meter.number += 10
                other[Meter].save(meter)

        def raise_by_one(meter: Meter) -> None:
            defeat()
            meter.number += 1

        @db.transactional()
        def change(tx: Transaction) -> None:
            meter = tx[Meter].get(1)
            raise_by_one(meter)
            tx[Meter].save(meter)

        if transactional:
            change()
        else:
            db[Meter].mutate(1, raise_by_one)
        assert db[Meter].get(1).number == 10 * defeats + 1
        context.turns.on_outsiders = None
    return found


@pytest.mark.parametrize("transactional", [False, True])
def test_a_call_reports_the_keys_that_it_has_lost_several_times(transactional):
    assert reported(1, transactional=transactional) == []
    assert reported(3, transactional=transactional)[:1] == [KEY]


def test_a_record_that_one_process_writes_costs_no_instruction_more():
    def raise_by_one(meter: Meter) -> None:
        meter.number += 1

    with Database("memory://outsiders", models=[Meter]) as db:
        db[Meter].create(id=1)
        context: Any = db._core.context
        found: list[bytes] = []
        counts = []
        for report in (None, found.extend):
            context.turns.on_outsiders = report
            for _ in range(3):
                db[Meter].mutate(1, raise_by_one)
            counts.append(fewest_instructions(lambda: db[Meter].mutate(1, raise_by_one)))
        context.turns.on_outsiders = None
    assert not found
    # A look at a list of keys, or one more call, takes more than this.
    assert counts[1] <= counts[0] + 5
