"""The one switch of the library: whether fast kinds of lookups, plans, loaders and writers are used.

Rules of this module: every fast kind gives what the general code gives. Tests set ``fast_kinds`` to False, before they
open a database, to run the same calls through the general code alone.
"""

from __future__ import annotations

fast_kinds: bool = True
