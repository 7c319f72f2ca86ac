"""Costs of writes of a small model, in bytecode instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvmodels import Database
from tools.trace_calls import instructions


def fewest_instructions(call: Callable[[], object]) -> int:
    """Return the fewest instructions of five runs of a call: a few more depend on the clock and on chance."""
    return min(instructions(call) for _ in range(5))


def instructions_of_writes(model: type[Any]) -> tuple[int, int]:
    """Return the instructions of a create, and of a patch of a field without an index.

    The model has a primary key ``id`` of type int, a unique text ``code`` and a text ``note``.
    """
    with Database("memory://", models=[model]) as opened:
        items, numbers = opened[model], iter(range(1_000))

        def create() -> None:
            number = next(numbers)
            items.create(id=number, code=f"{number}")

        def patch() -> None:
            items.patch(3, note=f"{next(numbers)}")

        for call in (create, patch):
            for _ in range(8):
                call()
        return fewest_instructions(create), fewest_instructions(patch)
