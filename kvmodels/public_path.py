"""The path by which classes and functions call themselves: the one that users import them from.

Rules of this module: a module that holds public names ends with a call of this function for all of them, so that a
name is shown alike whether or not the program has asked ``kvmodels`` for it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["show_public_path"]


def show_public_path(*things: Any) -> None:
    """Let tracebacks, reprs and pickles name ``kvmodels``, as httpx does; the modules inside may then move.

    Examples:
        >>> from kvmodels.errors import DoesNotExist
        >>> DoesNotExist.__module__
        'kvmodels'
    """
    for thing in things:
        thing.__module__ = "kvmodels"
