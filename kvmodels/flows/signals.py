"""Functions that run before and after records are written: ``db.signals.after_insert.connect(function, User)``.

Rules of this module: only the registry; ``flows/writing/changes.py`` calls the functions. Connections are replaced as a
whole, so other threads see each connection completely or not at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast, overload

from kvmodels.flows import arguments
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.on_write import HOOK_NAMES, HookName, Hooks, is_asynchronous
from kvmodels.schema.definition.definition import ModelSchema

M = TypeVar("M", bound=KvModel)
R = TypeVar("R")


_TENANT: ContextVar[str | None] = ContextVar("kvmodels_tenant", default=None)
"""The tenant of the write that calls the running receiver."""


class _Connection(NamedTuple):
    """A function, with the models that it is connected to."""

    function: Callable[..., object]
    models: tuple[type[Any], ...]


class _Registry:
    """The connections of one signal."""

    def __init__(self, name: HookName, lock: threading.Lock, forget: Callable[[], None]) -> None:
        self.connections: tuple[_Connection, ...] = ()
        self._name = name
        self._lock = lock
        self._forget = forget

    def _connect(self, function: Callable[..., object], models: tuple[type[Any], ...]) -> None:
        wanted = self._checked(function, models) or (KvModel,)
        with self._lock:
            kept = list(self.connections)
            for position, known in enumerate(kept):
                if known.function == function:
                    kept[position] = _Connection(function, tuple(dict.fromkeys((*known.models, *wanted))))
                    break
            else:
                kept.append(_Connection(function, wanted))
            self._replace(kept)

    def disconnect(self, function: Callable[..., object], /, *models: type[Any]) -> bool:
        """Stop calling a function.

        Args:
            function: a connected function.
            models: disconnect only from these models; none: from all.

        Returns:
            Whether it was connected to them. A write that has already begun may still call it.
        """
        with self._lock:
            kept: list[_Connection] = []
            for known in self.connections:
                if known.function != function:
                    kept.append(known)
                    continue
                rest = tuple(model for model in known.models if models and model not in models)
                if rest:
                    kept.append(_Connection(function, rest))
            found = tuple(kept) != self.connections
            self._replace(kept)
        return found

    def _replace(self, connections: list[_Connection]) -> None:
        self.connections = tuple(connections)
        self._forget()

    def _checked(self, function: Any, models: tuple[Any, ...]) -> tuple[type[Any], ...]:
        if not callable(function) or isinstance(function, type):
            raise arguments.refusal(
                "this is not a function", "function", function, "Write connect(function, User), the function first."
            )
        if is_asynchronous(function):
            raise arguments.refusal(
                "a receiver of a signal is asynchronous",
                "function",
                function,
                "Signals are sent inside of a write and cannot wait: connect a def. Start a task in it for the rest.",
            )
        for model in models:
            if not (isinstance(model, type) and issubclass(model, KvModel)):
                given = cast("object", model)
                raise arguments.refusal("this is not a model class", "models", given, "Give classes: connect(f, User).")
        return models

    def __repr__(self) -> str:
        return f"<signal {self._name} connections={len(self.connections)}>"


class Signal(_Registry):
    """A signal whose receivers take the object: for inserts and removals."""

    @overload
    def connect(self, function: Callable[[KvModel], R], /) -> Callable[[KvModel], R]: ...
    @overload
    def connect(self, function: Callable[[M], R], model: type[M], /, *models: type[M]) -> Callable[[M], R]: ...
    def connect(self, function: Callable[[Any], R], /, *models: type[Any]) -> Callable[[Any], R]:
        """Call a function for every record of these models, and of classes that derive from them.

        Args:
            function: called with the object. It is kept until it is disconnected; connecting it again adds models.
            models: model classes, also abstract ones; none: every model.

        Returns:
            The function, so that ``@signal.connect`` can be used as a decorator.

        Raises:
            InvalidArgumentError: the function is asynchronous or not callable, or an argument is not a model class.
        """
        self._connect(function, models)
        return function

    def __call__(self, model: type[M], /, *models: type[M]) -> Callable[[Callable[[M], R]], Callable[[M], R]]:
        """``connect`` as a decorator with models: ``@db.signals.after_insert(User)``."""

        def connected(function: Callable[[M], R]) -> Callable[[M], R]:
            self._connect(function, (model, *models))
            return function

        return connected


class ChangeSignal(_Registry):
    """A signal whose receivers take the object and the previous one: for updates."""

    @overload
    def connect(self, function: Callable[[KvModel, KvModel], R], /) -> Callable[[KvModel, KvModel], R]: ...
    @overload
    def connect(self, function: Callable[[M, M], R], model: type[M], /, *models: type[M]) -> Callable[[M, M], R]: ...
    def connect(self, function: Callable[[Any, Any], R], /, *models: type[Any]) -> Callable[[Any, Any], R]:
        """Call a function for every change of a record of these models, and of classes that derive from them.

        Args:
            function: called with the object and the previous one. It is kept until it is disconnected; connecting it
                again adds models.
            models: model classes, also abstract ones; none: every model.

        Returns:
            The function, so that ``@signal.connect`` can be used as a decorator.

        Raises:
            InvalidArgumentError: the function is asynchronous or not callable, or an argument is not a model class.
        """
        self._connect(function, models)
        return function

    def __call__(self, model: type[M], /, *models: type[M]) -> Callable[[Callable[[M, M], R]], Callable[[M, M], R]]:
        """``connect`` as a decorator with models: ``@db.signals.after_update(User)``."""

        def connected(function: Callable[[M, M], R]) -> Callable[[M, M], R]:
            self._connect(function, (model, *models))
            return function

        return connected


class Signals:
    """The six signals of one database; as ``db.signals``.

    Receivers run after the method of the model with the same name, in the order in which they were connected, and only
    for writes through this database. ``before_*`` run in every attempt of a write, ``after_*`` once after its commit.

    They are called for writes in all tenants of the database as well; ``tenant`` tells them which.

    Attributes:
        connected: whether any function is connected.

    Examples:
        >>> from kvmodels import Database, KvModel, PrimaryKey
        >>> class City(KvModel, collection="cities"):
        ...     id: PrimaryKey[int]
        ...     name: str
        >>> db = Database("memory://", models=[City])
        >>> @db.signals.before_insert(City)
        ... def capitalize(city: City) -> None:
        ...     city.name = city.name.capitalize()
        >>> db[City].create(id=1, name="oslo").name
        'Oslo'
        >>> db.signals.before_insert.disconnect(capitalize)
        True
    """

    def __init__(self) -> None:
        self.connected = False
        self._resolved: dict[type[Any], Hooks | None] = {}
        lock = threading.Lock()
        self.before_insert: Final = Signal("before_insert", lock, self._forget)
        self.before_update: Final = ChangeSignal("before_update", lock, self._forget)
        self.before_remove: Final = Signal("before_remove", lock, self._forget)
        self.after_insert: Final = Signal("after_insert", lock, self._forget)
        self.after_update: Final = ChangeSignal("after_update", lock, self._forget)
        self.after_remove: Final = Signal("after_remove", lock, self._forget)

    @property
    def tenant(self) -> str | None:
        """In a receiver, the name of the tenant whose record is written; None for the store itself."""
        return _TENANT.get()

    def _forget(self) -> None:
        self._resolved = {}
        self.connected = any(getattr(self, name).connections for name in HOOK_NAMES)

    def hooks_of(self, schema: ModelSchema) -> Hooks | None:
        """Return the hooks for the records of a model, methods first; None if there are none. Cost: a dict lookup."""
        # Kept during the loop: a connection made meanwhile replaces it with another object.
        resolved = self._resolved
        if schema.model in resolved:
            return resolved[schema.model]
        own = schema.hooks or Hooks()
        found = {name: getattr(own, name) + self._receivers(name, schema.model) for name in HOOK_NAMES}
        hooks = Hooks(**found) if any(found.values()) else None
        resolved[schema.model] = hooks
        return hooks

    def _receivers(self, name: HookName, model: type[Any]) -> tuple[Callable[..., object], ...]:
        registry: _Registry = getattr(self, name)
        return tuple(one.function for one in registry.connections if issubclass(model, one.models))

    def __repr__(self) -> str:
        connected = [f"{name}={len(getattr(self, name).connections)}" for name in HOOK_NAMES]
        return f"<{type(self).__name__} {' '.join(connected)}>"


class TenantSignals:
    """The signals of a database for writes in one tenant: receivers are told the tenant."""

    def __init__(self, signals: Signals, tenant: str) -> None:
        self._signals = signals
        self._tenant = tenant
        self._told: dict[type[Any], tuple[Hooks, Hooks]] = {}

    @property
    def connected(self) -> bool:
        """Whether any function is connected."""
        return self._signals.connected

    def hooks_of(self, schema: ModelSchema) -> Hooks | None:
        """Return the hooks for the records of a model, as ``Signals.hooks_of`` does."""
        hooks = self._signals.hooks_of(schema)
        if hooks is None:
            return None
        known = self._told.get(schema.model)
        if known is None or known[0] is not hooks:
            told = {name: tuple(partial(self._call, one) for one in getattr(hooks, name)) for name in HOOK_NAMES}
            known = self._told[schema.model] = hooks, Hooks(**told)
        return known[1]

    def _call(self, function: Callable[..., object], *records: Any) -> object:
        token = _TENANT.set(self._tenant)
        try:
            return function(*records)
        finally:
            _TENANT.reset(token)
