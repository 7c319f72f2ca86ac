"""The pool of connections to a server: an interrupt in any instant loses no permit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from kvmodels.engines.postgres import connection as module
from kvmodels.engines.postgres.connection import ConnectionPool
from kvmodels.errors import EngineTimeoutError
from tests.engines.interrupting import cut_short_at

USE = "reads"
SIZE = 2


class Connection:
    """The state of a connection in the pool."""

    permit = None
    closed = False

    def settle(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def roll_back_later(self) -> None:
        pass


def pool_of(open_one: Callable[[], Any] = Connection) -> ConnectionPool:
    return ConnectionPool(open_one, {USE: SIZE}, "postgresql://")


def require_every_permit(pool: ConnectionPool) -> None:
    taken = [pool.take(USE, 0) for _ in range(SIZE)]
    with pytest.raises(EngineTimeoutError):
        pool.take(USE, 0)
    for one in taken:
        pool.give_back(one)


def interrupted_everywhere(change: Callable[[ConnectionPool], object]) -> int:
    """Interrupt a change of a pool at every line in turn; how many there are."""
    line = 1
    while True:
        pool = pool_of()
        interrupted = cut_short_at(line, {module.__file__}, partial(change, pool))
        require_every_permit(pool)
        if not interrupted:
            return line - 1
        line += 1


def test_an_interrupt_at_any_line_of_taking_a_connection_loses_no_permit():
    assert interrupted_everywhere(lambda pool: pool.take(USE, 0)) > 4


@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_interrupt_at_any_line_of_giving_a_connection_back_loses_no_permit(in_transaction: bool):
    def use(pool: ConnectionPool) -> None:
        connection = pool.take(USE, 0)
        pool.give_back(connection, in_transaction=in_transaction)
        del connection
        pool.give_back(pool.take(USE, 0))

    assert interrupted_everywhere(use) > 12


def test_a_connection_that_is_lost_after_it_was_taken_gives_its_permit_back():
    pool = pool_of()
    for _ in range(3 * SIZE):
        pool.take(USE, 0)  # and the interrupt comes before anybody refers to it
    require_every_permit(pool)


def test_a_connection_that_cannot_be_opened_costs_no_permit_although_its_error_is_kept():
    refused: list[BaseException] = []

    def refuse() -> Any:
        raise EngineTimeoutError("the server does not answer")

    pool = pool_of(refuse)
    for _ in range(3 * SIZE):
        with pytest.raises(EngineTimeoutError, match="does not answer") as caught:
            pool.take(USE, 0)
        refused.append(caught.value)
    assert len(refused) == 3 * SIZE


def test_a_pool_that_was_closed_has_its_permits():
    pool = pool_of()
    pool.give_back(pool.take(USE, 0))
    pool.close(0)
    require_every_permit(pool)


def test_many_threads_replace_a_lost_permit_once():
    pool = pool_of()
    pool.take(USE, 0)
    together = threading.Barrier(8)
    taken: list[Any] = []

    def take() -> None:
        together.wait()
        with suppress(EngineTimeoutError):
            taken.append(pool.take(USE, 0))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == SIZE
