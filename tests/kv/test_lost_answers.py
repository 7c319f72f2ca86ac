"""A raw operation whose answer is lost: sent once, and reported as unknown."""

from __future__ import annotations

import pytest

from kvmodels.core.values import KvU64
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import CommitUnknownError
from tests.store_codecs import async_kv_on, kv_on


class LosingEngine(MemoryEngine):
    """Applies every commit and loses the answer."""

    def __init__(self):
        super().__init__()
        self.sent = 0

    def commit(self, write):
        self.sent += 1
        super().commit(write)
        raise CommitUnknownError("the answer was lost")


def test_a_raw_operation_is_sent_once_and_its_outcome_is_unknown():
    engine = LosingEngine()
    kv = kv_on(engine)
    operation = kv.atomic().sum(("n",), 1)
    for number, use in enumerate([operation.commit, lambda: kv.set(("k",), 1), lambda: kv.delete(("k",))], start=1):
        with pytest.raises(CommitUnknownError) as caught:
            use()
        assert caught.value.token is None
        assert engine.sent == number
    assert kv.get(("n",)).value == KvU64(1), "sending it again would have counted twice"


async def test_the_same_holds_asynchronously():
    engine = LosingEngine()
    kv = async_kv_on(engine)
    with pytest.raises(CommitUnknownError):
        await kv.atomic().sum(("n",), 1).commit()
    assert engine.sent == 1
    assert (await kv.get(("n",))).value == KvU64(1)
