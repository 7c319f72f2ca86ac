"""Results of ranked queries.

Rules of this module: data alone; a hit unpacks like any tuple, ``for shop, metres in hits``.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from kvmodels._support.naming import show_public_path

M = TypeVar("M")


class Hit(NamedTuple, Generic[M]):
    """A record that a ranked query has found, and its distance.

    Attributes:
        record: the object.
        distance: the distance from the origin of the query; of places, in metres.
    """

    record: M
    distance: float


show_public_path(Hit)
