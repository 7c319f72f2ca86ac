"""The database of a command: ``--database``, ``KVMODELS_DATABASE``, or ``[tool.kvmodels]`` of a pyproject.toml.

Its value is a URL or a path, as ``Database(...)`` takes it, or ``module:object``: the import path of a ``Database``, an
``AsyncDatabase``, or a function that returns one.

Rules of this module: nothing is opened here, apart from what the imported module opens itself.
"""

from __future__ import annotations

import os
import pkgutil
import re
import sys
import tomllib
import traceback
from pathlib import Path
from typing import Final

from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._sync.database import Database
from kvmodels.cli.failures import CommandError
from kvmodels.errors import KvModelsError

VARIABLE: Final = "KVMODELS_DATABASE"

_IMPORT_PATH: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SET_IT: Final = (
    f'Give -d URL or -d module:object, set {VARIABLE}, or write database = "module:object" below [tool.kvmodels] in '
    "pyproject.toml."
)


def find_database(given: str | None, folder: Path) -> str:
    """Return the text that names the database of a command.

    Args:
        given: the value of ``--database``, or None.
        folder: the working directory; the nearest pyproject.toml is looked up from here.

    Raises:
        CommandError: nothing names a database.
    """
    found = given or os.environ.get(VARIABLE) or _of_project(folder)
    if not found:
        raise CommandError("no database was given", hint=_SET_IT)
    return found


def _of_project(folder: Path) -> str | None:
    for parent in (folder, *folder.parents):
        path = parent / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            project = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise CommandError(f"{path} cannot be read: {error}", hint=_SET_IT) from error
        found = project.get("tool", {}).get("kvmodels", {}).get("database")
        if found is not None and not isinstance(found, str):
            raise CommandError(f"database in {path} is not text", hint=_SET_IT)
        return found
    return None


def is_import_path(text: str) -> bool:
    """Return whether a text is ``module:object``, and not a URL or a path.

    Examples:
        >>> [is_import_path(text) for text in ("shop.db:db", "app.db", "sqlite:///app.db", "C:/app.db")]
        [True, False, False, False]
    """
    return _IMPORT_PATH.fullmatch(text) is not None


def import_database(text: str, folder: Path) -> Database | AsyncDatabase:
    """Import ``module:object``, and call the object if it is a function.

    Args:
        text: the import path.
        folder: the working directory; it is put on ``sys.path``, as ``python -m`` does.

    Raises:
        CommandError: the module cannot be imported, or the object is no database.
    """
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    database = _imported(text)
    if not isinstance(database, Database | AsyncDatabase):
        raise CommandError(
            f"{text} is neither a Database nor an AsyncDatabase, but {type(database).__name__}",
            hint="Name a database, or a function that returns one.",
        )
    return database


def _imported(text: str) -> object:
    try:
        found = pkgutil.resolve_name(text)
        return found() if callable(found) else found
    except KvModelsError:
        raise
    except Exception as error:
        # The user's module may raise anything; its last line helps more than the frames of the import system.
        frames = [one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename).is_file()]
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        raise CommandError(f"cannot import {text}: {type(error).__name__}: {error}{place}") from error
