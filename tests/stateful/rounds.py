"""Runs of a state machine with one seed after the other, until each of its verbs has run.

Hypothesis also draws constants of the loaded modules. So the examples of a seed depend on the tests that were selected,
and one seed may miss a rare verb.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet

ROUNDS = 5


def run_until_each_verb_ran(verbs: AbstractSet[str], run: Callable[[int], Counter[str]]) -> None:
    """Call ``run(0)``, ``run(1)`` and so on, which count verbs; fail if one of them never ran."""
    ran: Counter[str] = Counter()
    for number in range(ROUNDS):
        ran += run(number)
        if ran.keys() >= verbs:
            return
    raise AssertionError(f"never ran: {verbs - ran.keys()}")
