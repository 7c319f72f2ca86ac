"""Content of blobs: store it before a write of its record, read it, and remove what no record has.

Rules of this package: a blob has one owner, a record or its loose row; see ``kvmodels/indexing/blobs.py``. An upload
and a sweep write only under the version of the loose row, so neither continues after the other one.
"""

from __future__ import annotations

from kvmodels._support.lazy_modules import deferred_modules

__getattr__ = deferred_modules(__name__, "sweep")
