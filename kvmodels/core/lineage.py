"""The key of the lineage: a row with a random text, which distinguishes a store from its copies.

A position of a change feed contains the lineage. A copy of a store continues with other commits.

Rules of this module: pure. The row is written with the first position, and is never copied.
"""

from __future__ import annotations

from typing import Final

from kvmodels.core.keys import encode_key

LINEAGE_KEY: Final = encode_key(("__kvmodels__", "lineage"))
"""The key of the row, in a store and, after the prefix of the part, in the part of a tenant."""

TENANT_PARTS: Final = encode_key(("__kvmodels__", "tenant"))
"""The common prefix of all keys of tenants."""
