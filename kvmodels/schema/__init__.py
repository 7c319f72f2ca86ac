"""Schemas: models, markers, declared indexes, and what is compiled of them.

Rules of this module: what only some programs do with a model is loaded when they first do it.
"""

from __future__ import annotations

from kvmodels.deferred import deferred_modules

__getattr__ = deferred_modules(
    __name__, "compile", "definition", "evolution", "evolution_rules", "options", "partial_model"
)
