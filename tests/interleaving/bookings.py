"""Bookings of rooms as two releases declare them: the later one forbids that two of a room overlap."""

from __future__ import annotations

from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.declare.markers import PrimaryKey
from kvmodels.schema.kinds.exclusion import ExclusionConstraint
from tests.oracle import audit, read_engine, spec_of


class BookingFields(KvModel, abstract=True):
    id: PrimaryKey[str]
    room: str | None = "A"
    starts: int | None = 0
    ends: int | None = None
    cancelled: bool = False
    note: str = ""


class OldBooking(BookingFields, collection="bookings"):
    """The release that is running."""


class Booking(BookingFields, collection="bookings"):
    """The next release."""

    class Meta:
        indexes = (ExclusionConstraint("starts", "ends", group="room", where=Q(cancelled=False), name="no_overlap"),)


SPEC = spec_of(Booking)
OLD_SPEC = spec_of(OldBooking)


def booking_faults(engine: MemoryEngine) -> list[str]:
    """Return the findings of the oracle, as text: entries that are not those of their records, and overlaps."""
    found = read_engine(engine)
    (header,) = (entry.value for entry in found if entry.key == ("__kvmodels__", "header"))
    built = bool(header["collections"]["bookings"]["indexes"])
    return [str(fault) for fault in audit(found, [SPEC if built else OLD_SPEC])]
