"""The arguments of a database, from which the same store can be opened again.

Rules of this module: values only. The URL may contain a password, so no ``repr`` shows it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.schema.compile.model import KvModel


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The arguments that a ``Database`` or an ``AsyncDatabase`` was made with.

    Tools open the same store with them again, in the other form or read-only:
    ``Database(settings.url, models=settings.models, **settings.options)``.

    Attributes:
        models: the model classes.
        url: the URL or the path, with its password.
        options: all other arguments by name, such as ``readonly`` and ``codec``, without the observer.
    """

    models: tuple[type[KvModel], ...]
    url: str | os.PathLike[str] = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)


show_public_path(DatabaseSettings)
