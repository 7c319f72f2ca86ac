"""Values whose expired owner holds several unique values."""

from __future__ import annotations

from kvmodels import Database, KvModel, PrimaryKey, Unique


class TwiceUniqueThing(KvModel, collection="twice_unique_things"):
    id: PrimaryKey[int]
    code: Unique[str]
    serial: Unique[str]


def test_a_record_takes_over_two_unique_values_of_one_expired_record():
    now = [1_000_000]
    with Database("memory://", models=[TwiceUniqueThing], clock=lambda: now[0]) as db:
        things = db[TwiceUniqueThing]
        things.insert(TwiceUniqueThing(id=1, code="a", serial="s"), expire_in=1)
        now[0] += 2_000
        things.create(id=2, code="a", serial="s")
        assert things.get(code="a").id == things.get(serial="s").id == 2
        assert db.check().ok
