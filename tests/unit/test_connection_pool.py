"""The pool of connections to a server: interrupts lose no permit, and a server with few connections is shared."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from kvmodels.engines.postgres.connections import pool as module
from kvmodels.engines.postgres.connections.pool import ConnectionPool
from kvmodels.errors import EngineTimeoutError
from tests.crowd import until
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


class Server:
    """Opens connections, as long as it has some.

    Args:
        left: how many.
    """

    def __init__(self, left: int) -> None:
        self.left = left
        self.opened: list[Any] = []
        self.refusals = 0

    def open_one(self) -> Any:
        if not self.left:
            self.refusals += 1
            raise EngineTimeoutError("the server takes no connections at present")
        self.left -= 1
        self.opened.append(Connection())
        return self.opened[-1]


def waiting(pool: ConnectionPool, take: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start a thread that takes a connection, and return it with its result once it waits."""
    taken: list[Any] = []
    thread = threading.Thread(target=lambda: taken.append(take()))
    before = len(pool._waiting)
    thread.start()
    until(lambda: len(pool._waiting) > before)
    return thread, taken


def test_commits_get_a_connection_before_reads_take_the_rest():
    server = Server(3)
    pool = pool_of(server.open_one)
    taken = [pool.take(USE, 0) for _ in range(SIZE)]
    assert taken == [server.opened[0], server.opened[2]]
    assert pool.take_writer(0) is server.opened[1]


def test_a_store_that_is_not_written_keeps_no_connection_for_commits():
    server = Server(3)
    pool = ConnectionPool(server.open_one, {USE: SIZE}, "postgresql://", commits=False)
    assert [pool.take(USE, 0) for _ in range(SIZE)] == server.opened


def test_a_call_waits_for_a_connection_of_the_pool_where_the_server_has_no_more():
    server = Server(1)
    pool = pool_of(server.open_one)
    first = pool.take(USE, 0)
    thread, taken = waiting(pool, lambda: pool.take(USE, 60))
    pool.give_back(first)
    thread.join()
    assert taken == [first]
    assert server.refusals


def test_a_commit_gets_the_next_connection_before_a_read_that_waits_longer():
    server = Server(1)
    pool = pool_of(server.open_one)
    first = pool.take(USE, 0)
    reader, read = waiting(pool, lambda: pool.take(USE, 60))
    writer, written = waiting(pool, lambda: pool.take_writer(60))
    pool.give_back(first)
    writer.join()
    assert (read, written) == ([], [first])
    server.left = 1
    reader.join()
    assert read == [server.opened[1]]


def test_a_server_that_takes_connections_later_is_waited_for():
    server = Server(0)
    pool = pool_of(server.open_one)
    thread, taken = waiting(pool, lambda: pool.take(USE, 60))
    server.left = 1
    thread.join()
    assert taken == server.opened


def test_a_call_without_time_is_refused_at_once_and_the_error_says_why():
    server = Server(0)
    pool = pool_of(server.open_one)
    for refusals in (1, 2):
        with pytest.raises(EngineTimeoutError, match="takes no connections"):
            pool.take(USE, 0)
        assert server.refusals == refusals
    require_every_permit_of(pool, server)


def require_every_permit_of(pool: ConnectionPool, server: Server) -> None:
    server.left = SIZE + 1
    require_every_permit(pool)
