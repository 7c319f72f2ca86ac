"""Access to an exclusion constraint: conditions and orders use none of its rows.

Rules of this module: pure.
"""

from __future__ import annotations

from typing import Final

from kvmodels.query.kinds.contract import KindAccess


class ExclusionAccess(KindAccess):
    """Access to an exclusion constraint."""


ACCESS: Final = ExclusionAccess()
