"""The policy for retries of conflicting writes: attempts, deadline and pauses.

Rules of this module: the caller provides randomness.
"""

from __future__ import annotations

from typing import Final, cast

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError

_MOST_DOUBLINGS: Final = 64
"""Maximum number of doublings of the pause: far beyond any cap, and within the range of a float."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The policy for retries of a conflicting operation.

    The pause before attempt n, the second or a later one, is uniform between 0 and ``min(cap_s, initial_s * 2**(n -
    2))`` seconds ("full jitter", as the AWS Architecture Blog calls it), and no attempt starts after ``deadline_s``. A
    write counts from its second attempt, which follows the first at once; if the first attempt needs no read, it does
    not count as one of the ``attempts``.

    Examples:
        >>> RetryPolicy().pause(attempt=3, uniform=0.5)
        0.001
    """

    attempts: int = 50
    deadline_s: float = 10.0
    initial_s: float = 0.001
    cap_s: float = 0.25

    def __post_init__(self) -> None:
        if type(cast("object", self.attempts)) is not int or self.attempts < 1:
            raise InvalidArgumentError(
                "a retry policy needs a whole number of attempts, one at least",
                argument="attempts",
                value=self.attempts,
                hint="Give attempts=1 for no retry.",
            )
        for name in ("deadline_s", "initial_s", "cap_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise InvalidArgumentError(
                    "a duration of a retry policy is negative or not a number",
                    argument=name,
                    value=value,
                    hint="Give seconds, 0 or more.",
                )

    def pause(self, attempt: int, uniform: float) -> float:
        """Return the seconds to wait before this attempt (attempt 1 never waits)."""
        if attempt < 2:
            return 0.0
        doublings = min(attempt - 2, _MOST_DOUBLINGS)
        return uniform * min(self.cap_s, self.initial_s * 2.0**doublings)


DEFAULT_RETRY: Final = RetryPolicy()


show_public_path(RetryPolicy)
