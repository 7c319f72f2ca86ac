"""Stemmers of languages, from PyStemmer, the package of the extra ``search``.

Rules of this module: it is loaded only for an index with a language. A stemmer must not be shared by threads, and costs
half a microsecond: each text has its own.
"""

from __future__ import annotations

from collections.abc import Callable

import Stemmer

LANGUAGES: frozenset[str] = frozenset(Stemmer.algorithms())
"""The languages with a stemmer."""


def stemmer(language: str) -> Callable[[str], str]:
    """Return the function from a folded word to its stem, for one thread."""
    return Stemmer.Stemmer(language, 0).stemWord
