"""The handles of tenants, for both APIs: their engines, and the most recently used ones.

Rules of this module: nothing here reads the store. A handle is made from the open database, and costs nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from kvmodels.api import core as database_core
from kvmodels.catalog.keyspace import ANNOUNCED, HEADER_KEY, QUEUE, tenant_prefix, tenant_row_key
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import Row
from kvmodels.engines.contract import Engine
from kvmodels.engines.part.engine import PartEngine
from kvmodels.engines.part.gate import PartPlace
from kvmodels.engines.part.keys import Announcements
from kvmodels.errors import InvalidArgumentError, UnsupportedError
from kvmodels.flows import tenants
from kvmodels.flows.effects import Flow
from kvmodels.runtime import sync

V = TypeVar("V")

_lives: Final[WeakKeyDictionary[tenants.TenantLife, Engine]] = WeakKeyDictionary()
"""The lives of all handles of this process, with the engines of their stores."""

_lives_lock: Final = threading.Lock()


def require_cache(size: object) -> int:
    """Return a valid number of handles to keep. Raises InvalidArgumentError."""
    if type(size) is not int or size < 0:
        raise InvalidArgumentError(
            "tenant_cache must be a whole number, 0 or more",
            argument="tenant_cache",
            value=size,
            hint="Give the number of tenants whose handles are kept: tenant_cache=1000.",
        )
    return size


def require_database(kind: type[V], given: object) -> V:
    """Return the database of a copy. Raises InvalidArgumentError."""
    if not isinstance(given, kind):
        raise InvalidArgumentError(
            "a copy is made into a database of the same kind",
            argument="to",
            value=type(given).__name__,
            hint=f"Give an open {kind.__name__}.",
        )
    return given


def of_the_store(call: str) -> UnsupportedError:
    """Return the error for a call on a tenant that belongs to the whole store."""
    return UnsupportedError(
        "this call belongs to the whole store, not to one of its tenants",
        reason=call,
        hint="Call it on the database that was opened.",
    )


def tenant_engine(
    engine: Engine, core: database_core.DatabaseCore, life: tenants.TenantLife, arun: Callable[[Engine, Any], Any]
) -> tuple[PartEngine, database_core.DatabaseCore]:
    """Return the engine of a tenant, and its declarations.

    ``arun`` runs a flow for engines with an asynchronous form.
    """
    declared, name = core.of_tenants(), life.name
    announcements = Announcements(QUEUE, ANNOUNCED, encode_key((name,)), *core.form.codec.encode(True))
    place = PartPlace(
        tenant_prefix(name),
        HEADER_KEY,
        tenant_row_key(name),
        life.admit,
        lambda: life.ended,
        announcements=announcements,
    )
    if life.creates:

        def creation() -> Flow[bool]:
            return tenants.create_tenant(core.context, name, declared.schemas)

        header = Row(HEADER_KEY, *tenants.first_header(core.form.codec, declared.schemas), tenants.NO_VERSION, None)
        place = replace(
            place,
            header=header,
            create=lambda: sync.run(engine, creation()),
            acreate=lambda: arun(engine, creation()),
        )
    part = PartEngine(engine, place)
    life.close = part.gate.close
    with _lives_lock:
        _lives[life] = engine
    return part, declared.of_part(part, core.context, name)


def end_lives(engine: Engine, name: str, life: str) -> None:
    """End the use of all handles of this process that have seen a life of a tenant, of any database of the store."""
    with _lives_lock:
        handles = [(one, of) for one, of in _lives.items() if one.name == name and of.url == engine.url]
    for one, of in handles:
        one.end(life, unread=of is engine)


class TenantHandles(Generic[V]):
    """The handles of a database that were used last, by name of the tenant and by whether they create it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, bool], tuple[tenants.TenantLife, V]] = OrderedDict()

    def get(self, name: str, *, creates: bool) -> V | None:
        """Return a handle whose tenant was not removed, as far as it knows; None if there is none."""
        with self._lock:
            known = self._known.get((name, creates))
            if known is None or known[0].ended:
                return None
            self._known.move_to_end((name, creates))
            return known[1]

    def put(self, life: tenants.TenantLife, handle: V) -> None:
        """Keep a handle, and forget the one that was not used for the longest time."""
        with self._lock:
            self._known[life.name, life.creates] = life, handle
            self._known.move_to_end((life.name, life.creates))
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def forget(self, name: str) -> None:
        """Forget the handles of a tenant."""
        with self._lock:
            for creates in (False, True):
                self._known.pop((name, creates), None)
