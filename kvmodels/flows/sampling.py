"""How many records models are tried on, unless a caller says otherwise.

Rules of this module: a default in a signature must not load the flows that use it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SAMPLE"]

SAMPLE: Final = 100
"""Records of each collection on which a plan tries the models."""
