"""Entries of an index of places: a key of group, cell and primary key, which holds the degrees.

Rules of this module: pure. A record has one entry for each value of its group, none without a place.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kvmodels.catalog.keyspace import IndexLayout
from kvmodels.codecs.base import BYTES_ENCODING
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import encode_part
from kvmodels.errors import InvalidValueError
from kvmodels.indexing.entries import StoredRecord
from kvmodels.indexing.kinds.contract import NOTHING, Contents, KindMaintenance
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.geometry.cells import cell_of, packed_cell
from kvmodels.schema.kinds.geo import is_place, options_of

_packed_degrees: Final = Struct(">dd").pack


class GeoMaintenance(KindMaintenance):
    """The maintenance of an index of places."""

    def __init__(self, layout: IndexLayout) -> None:
        super().__init__(layout)
        options = options_of(layout.definition)
        self._field = options.looked_up
        self._lat = reader_of(options.lat)
        self._lon = reader_of(options.lon)

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        """Return the entry of a record; raises InvalidValueError for degrees that are out of their range."""
        del codec
        layout, document = self.layout, record.document
        if not layout.covers(document) or not layout.holds(document):
            return NOTHING
        lat, lon = self._lat(document), self._lon(document)
        if not is_place(lat, lon):
            if (lat, lon) == (None, None):
                return NOTHING
            raise InvalidValueError(
                "a place has degrees that are out of their range",
                field=self._field,
                type="GeoPoint",
                hint="The latitude is a number from -90 to 90, the longitude one from -180 to 180.",
            )
        tail = encode_part(packed_cell(cell_of(lat, lon))) + record.pk
        value = (_packed_degrees(lat, lon), BYTES_ENCODING)
        heads, _ = layout.heads(document)
        return Contents({head + tail: value for head in heads}, fan_out=len(heads))


MAINTENANCE: Final = GeoMaintenance
