"""The option ``progress=`` of long calls: a function of the caller, or True for a progress bar.

Rules of this module: without a bar, nothing is loaded and nothing is wrapped; the function of the caller is called as
it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from kvmodels.api.progress import bars, measures

T = TypeVar("T")


def listener(
    progress: bool | Callable[[T], object] | None, work: str
) -> AbstractContextManager[Callable[[T], object] | None]:
    """Return the context of a long call, which yields the function to call with its progress, or None.

    Args:
        progress: the argument of the caller: a function, True for a bar, or None.
        work: the label of a bar, such as ``"update users"``.
    """
    if progress is True:
        return _bar(work)
    return nullcontext(None if progress is False else progress)


@contextmanager
def _bar(work: str) -> Generator[Callable[[Any], object]]:
    with bars.drawn() as report:
        yield lambda progress: report(*measures.measured(work, progress))
