"""Transactions of the clients of an interleaving: the real ones, whose requests are steps of the schedule.

Rules of this module: what a transaction reads comes from its snapshot, as in a driver; that is a step nevertheless, so
that others may run between two reads.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from kvmodels.engines.base import Snapshot
from kvmodels.errors import KvModelsError
from kvmodels.flows.requests import Count, Flow, Read, Request
from kvmodels.transaction_scope import Store
from kvmodels.transaction_session_async import AsyncSession

__all__ = ["InterleavedSession"]

T = TypeVar("T")


class InterleavedSession(AsyncSession):
    """One transaction whose requests are answered by whoever drives the client.

    Args:
        store: the store and the declarations.
        attempt: how often the transaction was begun, this time included.
        pin: takes a snapshot.
    """

    __slots__ = ("_pin",)

    def __init__(self, store: Store, attempt: int, pin: Callable[[], Snapshot]) -> None:
        super().__init__(store, attempt)
        self._pin = pin

    async def perform(self, flow: Flow[T]) -> T:
        """Run a flow of the transaction itself, in its snapshot.

        Args:
            flow: a generator that has not been started.

        Returns:
            What the flow returns.
        """
        return await _requests(flow, self._snapshot)

    async def _pinned(self) -> Snapshot:
        return self._pin()

    async def _send(self, flow: Flow[T]) -> T:
        return await _requests(flow, None)

    async def _release(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()


@types.coroutine
def _requests(flow: Flow[T], snapshot: Snapshot | None) -> Generator[Request, Any, T]:
    step: Callable[[Any], Request] = flow.send
    answer: Any = None
    try:
        while True:
            try:
                request = step(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            step = flow.send
            try:
                answer = yield request
                if isinstance(request, Read) and snapshot is not None:
                    expired, follow = request.include_expired, request.follow
                    answer = snapshot.read(request.ranges, include_expired=expired, follow=follow)
                elif isinstance(request, Count) and snapshot is not None:
                    answer = snapshot.count(request.ranges)
            except KvModelsError as error:
                step, answer = flow.throw, error
            except BaseException as interruption:
                # As a driver does: the flow may say what it knows of a commit that is under way.
                if not isinstance(interruption, Exception):
                    _tell(flow, interruption)
                raise
    finally:
        flow.close()


def _tell(flow: Flow[Any], interruption: BaseException) -> None:
    try:
        flow.throw(interruption)
    except (StopIteration, type(interruption)):
        return
