"""Run one flow inside another one, which answers its requests.

Rules of this module: no state; errors of an answer are thrown into the inner flow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kvmodels.errors import KvModelsError
from kvmodels.flows.effects import Flow, ReadPresent, Request

T = TypeVar("T")


def presently(request: Any) -> Flow[Any]:
    """Read the present state, and not the snapshot of the transaction."""
    return (yield ReadPresent(*request))


def serve(flow: Flow[T], answer: Callable[[Request], Flow[Any]]) -> Flow[T]:
    """Run a flow inside another one: ``answer`` answers its requests, and its errors are thrown into the flow."""
    step: Callable[[Any], Request] = flow.send
    answered: Any = None
    try:
        while True:
            try:
                request = step(answered)
            except StopIteration as done:
                result: T = done.value
                return result
            step = flow.send
            try:
                answered = yield from answer(request)
            except KvModelsError as error:
                step, answered = flow.throw, error
    finally:
        flow.close()
        answered = None  # avoids a cycle: a stored error refers to its traceback and to this frame
