"""HTML of a listing of keys: its selector and its first entries, read in one batch.

Rules of this module: the listing itself does not move, because a second one reads; it never raises an error of the
library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvmodels._support.naming import short_repr
from kvmodels._support.notebooks import cells, html
from kvmodels.core.operations import Entry
from kvmodels.flows.kv.operations import Listing

ENTRIES_SHOWN: Final = 10

NOT_IN_TRANSACTION: Final = "Not read: the commit of a transaction checks all entries that it read."


def taken(listing: Listing) -> list[Entry]:
    """Return the fetched entries of a listing."""
    found: list[Entry] = []
    while (entry := listing.take()) is not None:
        found.append(entry)
    return found


def listing_view(name: str, listing: Listing, entries: Sequence[Entry] | None, note: str = "") -> str:
    """Return the HTML of a listing; ``entries``: the first ones, None if they were not read."""
    facts = [("prefix", short_repr(listing.selector))] if listing.selector else []
    if entries is None:
        return html.view(name, facts, note=note)
    shown = entries[:ENTRIES_SHOWN]
    rows = [[html.Cell(short_repr(one.key)), cells.cell(one.value), html.Cell(one.versionstamp or "")] for one in shown]
    more = len(entries) > ENTRIES_SHOWN
    count = f"{len(shown)} entr{'y' if len(shown) == 1 else 'ies'}."
    note = f"The first {ENTRIES_SHOWN} entries; there are more." if more else count
    return html.view(name, facts, table=html.Table(("key", "value", "versionstamp"), rows), note=note)
