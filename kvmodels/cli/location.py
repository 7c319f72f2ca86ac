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
import sysconfig
import tomllib
import traceback
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._sync.database import Database
from kvmodels.cli.failures import CommandError
from kvmodels.errors import KvModelsError

VARIABLE: Final = "KVMODELS_DATABASE"

_IMPORT_PATH: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_LIBRARIES: Final = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).parent.parent),
)
_SET_IT: Final = (
    f'Give -d URL or -d module:object, set {VARIABLE}, or write database = "module:object" below [tool.kvmodels] in '
    "pyproject.toml."
)


@dataclass(frozen=True, slots=True)
class NamedDatabase:
    """The name of the database of a command, and where its modules are.

    Attributes:
        text: a URL, a path or ``module:object``.
        folder: the folder whose modules can be imported: that of the pyproject.toml, or the working directory.
    """

    text: str
    folder: Path


def find_database(given: str | None, folder: Path) -> NamedDatabase:
    """Return the text that names the database of a command, with the folder of its modules.

    Args:
        given: the value of ``--database``, or None.
        folder: the working directory; the nearest pyproject.toml is looked up from here.

    Raises:
        CommandError: nothing names a database.
    """
    text = given or os.environ.get(VARIABLE)
    found = NamedDatabase(text, folder) if text else _of_project(folder)
    if found is None or not found.text:
        raise CommandError("no database was given", hint=_SET_IT)
    return found


def _of_project(folder: Path) -> NamedDatabase | None:
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
        return None if found is None else NamedDatabase(found, parent)
    return None


def is_import_path(text: str) -> bool:
    """Return whether a text is ``module:object``, and not a URL or a path.

    Examples:
        >>> [is_import_path(text) for text in ("shop.db:db", "app.db", "sqlite:///app.db", "C:/app.db")]
        [True, False, False, False]
    """
    return _IMPORT_PATH.fullmatch(text) is not None


def is_absent_file(text: str) -> bool:
    """Return whether a URL or a path is that of a file, or of a folder of LMDB, that does not exist.

    Examples:
        >>> [is_absent_file(text) for text in ("absent.db", "lmdb:///absent", "memory://", "sqlite://:memory:")]
        [True, True, False, False]
    """
    scheme, slashes, path = text.rpartition("://")
    if slashes and scheme not in ("sqlite", "lmdb"):
        return False
    path = path.removeprefix("/") if slashes else path
    return path != ":memory:" and not Path(path).exists()


def module_like(text: str, folder: Path) -> str | None:
    """Return ``module:db`` if a text that names no store is the name of a module in a folder, otherwise None."""
    if text.isidentifier() and PathFinder.find_spec(text, [str(folder)]) is not None:
        return f"{text}:db"
    return None


def import_database(found: NamedDatabase) -> Database | AsyncDatabase:
    """Import ``module:object``, and call the object if it is a function.

    Raises:
        CommandError: the module cannot be imported, or the object is no database.
    """
    database = import_object(found.text, found.folder)
    if not isinstance(database, Database | AsyncDatabase):
        kind = "a class" if isinstance(database, type) else type(database).__name__
        raise CommandError(
            f"{found.text} is neither a Database nor an AsyncDatabase, but {kind}",
            hint="Name a database, or a function that returns one.",
        )
    return database


def import_object(text: str, folder: Path) -> object:
    """Import ``module:object``, and return the object, or its result if it is a function.

    The folder is put on ``sys.path``, as ``python -m`` does. Raises CommandError.
    """
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found = pkgutil.resolve_name(text)
        return found() if callable(found) and not isinstance(found, type) else found
    except KvModelsError:
        raise
    except Exception as error:
        # The user's module may raise anything; its last line helps more than the frames of libraries.
        frames = [one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename).is_file()]
        own = [one for one in frames if not one.filename.startswith(_LIBRARIES)]
        place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
        raise CommandError(f"cannot import {text}: {type(error).__name__}: {error}{place}") from error
