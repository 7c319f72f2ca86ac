"""Which name was probably meant, for the hints of errors.

Rules of this module: it is loaded with the first error that has a suggestion, as all of ``difflib``.
"""

from __future__ import annotations

from difflib import get_close_matches as get_close_matches
