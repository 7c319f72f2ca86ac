"""Hypothesis profiles: the same examples in every run, and a blob to replay a failure with.

``default`` is for ``make test``; ``soak`` looks at ten times as many examples and draws new ones in each run
(the seed that pytest prints repeats them: ``pytest -m soak --hypothesis-seed=N``).
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_SHARED = settings(
    # A shared machine may pause us anywhere; a deadline would be a timing assertion.
    deadline=None,
    # Replaying examples from a local database would make two checkouts test different things.
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

settings.register_profile("default", _SHARED, derandomize=True)
settings.register_profile("soak", _SHARED, derandomize=False, max_examples=1000)
settings.load_profile("default")
