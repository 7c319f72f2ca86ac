"""The default number of records on which a plan tries the models.

Rules of this module: a default in a signature must not load the flows that use it.
"""

from __future__ import annotations

from typing import Final

SAMPLE: Final = 100
"""Records of each collection on which a plan tries the models."""
