"""The open store of one command, with the declared models.

Rules of this module: every store that a command uses is opened and closed here. Commands that only read open a URL
read-only, so they never create a file or write a catalogue.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels._support.suggest import closest
from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._sync.database import Database
from kvmodels.api._sync.kv import Kv, open_kv
from kvmodels.cli.failures import CommandError
from kvmodels.cli.location import (
    NamedDatabase,
    find_database,
    import_database,
    is_absent_file,
    is_import_path,
    module_like,
)
from kvmodels.errors import DecodeError, EngineError
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.describe.describe import describe

_NEEDS_CLASSES: Final = "a URL has no model classes, which this command needs"
_NEEDS_TENANT_CLASSES: Final = "the database has no models of tenants, which this command needs"
_FORBIDDEN: Final = "this command writes, which --readonly forbids"
_WITHOUT_READONLY: Final = "Leave --readonly out."
NAME_A_STORE: Final = "Give the path of a store, or module:object."
_NAME_THEM: Final = "Give the database of your program as module:object, such as -d myshop.database:db."


@dataclass(frozen=True, slots=True)
class OpenStore:
    """The store that a command works on.

    Attributes:
        db: the database, open; of a command with ``--tenant`` that of the tenant.
        models: the declared model classes by collection, of several classes the first; empty for a URL.
    """

    db: Database
    models: dict[str, type[KvModel]]

    @property
    def kv(self) -> Kv:
        """The key-value API of the store."""
        return self.db.kv

    def model(self, name: str) -> type[KvModel]:
        """Return the model with a collection or a class of this name.

        Raises:
            CommandError: there is none.
        """
        self.require_models()
        return _named(self.db.models, self.models, name)

    def chosen_of_tenants(self, names: Iterable[str]) -> list[type[KvModel]]:
        """Return the models of tenants with these names, or all of them if no name is given. Raises CommandError."""
        declared = self.db.tenant_models
        if not declared:
            raise CommandError(_NEEDS_TENANT_CLASSES, hint=_NAME_THEM)
        models = {describe(model).collection: model for model in reversed(declared)}
        return [_named(declared, models, name) for name in names] or list(models.values())

    def chosen(self, names: Iterable[str]) -> list[type[KvModel]]:
        """Return the models with these names, or all of them if no name is given. Raises CommandError."""
        self.require_models()
        return [self.model(name) for name in names] or list(self.models.values())

    def require_models(self) -> None:
        """Raise CommandError if the database was given as a URL, which has no classes."""
        if not self.models:
            raise CommandError(_NEEDS_CLASSES, hint=_NAME_THEM)


def _named(declared: Iterable[type[KvModel]], models: dict[str, type[KvModel]], name: str) -> type[KvModel]:
    known = {**models, **{model.__name__: model for model in declared}}
    found = known.get(name)
    if found is None:
        close = closest(name, known)
        guess = f"Did you mean {close}? " if close else ""
        raise CommandError(f"no model is called {name!r}", hint=f"{guess}There are: {', '.join(models)}.")
    return found


@contextmanager
def open_store(
    given: str | None,
    *,
    readonly: bool,
    writes: bool,
    creates: bool = False,
    codec: str | None = None,
    if_absent: str = NAME_A_STORE,
    tenant: str | None = None,
) -> Generator[OpenStore]:
    """Open the database of a command, and close it afterwards.

    Args:
        given: the value of ``--database``, or None.
        readonly: the value of ``--readonly``.
        writes: whether the command writes.
        creates: whether the command may create the store.
        codec: the codec of a store that is given as a URL; None for the one it was written with.
        if_absent: the hint for a path without a store.
        tenant: the tenant that the command is confined to; None for the store itself.

    Raises:
        CommandError: no database is named, it cannot be imported, or ``--readonly`` forbids the command; or a tenant is
            given, and the database is a URL.
    """
    if readonly and writes:
        raise CommandError(_FORBIDDEN, hint=_WITHOUT_READONLY)
    found = find_database(given, Path.cwd())
    if tenant is not None and not is_import_path(found.text):
        raise CommandError(_NEEDS_CLASSES, hint=_NAME_THEM)
    if is_import_path(found.text):
        db = _opened(import_database(found), readonly=not writes, must_be_readonly=readonly)
    else:
        if codec is None or not creates:  # of a given codec too: a misspelt name must not create a store
            stored = _codec_of(found, may_be_absent=creates, if_absent=if_absent)
            codec = codec or stored
        db = Database(found.text, codec=codec, readonly=not writes)
    with db:
        used = db if tenant is None else db.tenant(tenant)
        yield OpenStore(used, {describe(model).collection: model for model in reversed(used.models)})


@contextmanager
def open_unfinished(given: str | None, *, readonly: bool, codec: str | None) -> Generator[Kv]:
    """Open the key-value API of a store in which a load may have been interrupted, which no database opens.

    Args:
        given: the value of ``--database``, or None.
        readonly: the value of ``--readonly``.
        codec: the codec of a store that is given as a URL; None for the one it was written with.

    Raises:
        CommandError: no database is named, or ``--readonly`` forbids the command.
    """
    if readonly:
        raise CommandError(_FORBIDDEN, hint=_WITHOUT_READONLY)
    found = find_database(given, Path.cwd())
    settings = import_database(found).settings if is_import_path(found.text) else None
    url: str | PathLike[str] = found.text
    if settings is None:
        codec = codec or _codec_of(found, may_be_absent=True, if_absent=NAME_A_STORE)
    else:
        url, codec = settings.url, settings.options["codec"]
    with open_kv(url, codec=codec) as kv:
        yield kv


def _codec_of(found: NamedDatabase, *, may_be_absent: bool, if_absent: str) -> str | None:
    """Return the codec that the first value of a store was written with; None for that of its engine.

    It opens the store read-only, so that no engine creates it. Raises CommandError: there is no file of this name.
    """
    try:
        with open_kv(found.text, readonly=True) as kv:
            next(kv.list((), limit=1), None)
    except DecodeError as error:
        return "v8" if str(error.reason).startswith("encoding ") else "msgpack"
    except EngineError as error:
        if may_be_absent:
            return None
        if is_absent_file(found.text):
            program = module_like(found.text, found.folder)
            hint = f"Did you mean {program}?" if program else if_absent
            raise CommandError(f"no store {found.text!r}", hint=hint) from error
        raise
    return None


def _opened(database: Database | AsyncDatabase, *, readonly: bool, must_be_readonly: bool) -> Database:
    """Return a synchronous, open database for that of the user's module.

    A ``Database`` is open for writing already, and is used as it is, unless the user demands a read-only one.
    """
    if isinstance(database, Database) and not must_be_readonly:
        return database
    settings = database.settings
    if settings is None:
        raise CommandError(
            "this database was made with from_engine(), so it cannot be opened again",
            hint="Give a Database without --readonly, or one that was opened by its URL.",
        )
    if isinstance(database, Database):
        database.close()
    options: dict[str, Any] = {**settings.options}
    options["readonly"] = readonly or options["readonly"]
    return Database(settings.url, models=settings.models, **options)
