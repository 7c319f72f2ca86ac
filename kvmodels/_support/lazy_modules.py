"""Modules and names that are loaded when they are first used, so that a program pays only for the parts that it uses.

Rules of this module: how an import is written says when it happens. ``from kvmodels.flows.check.scrub import Repair``
loads ``scrub`` at once; ``from kvmodels.flows import scrub`` loads it at the first ``scrub.something``, if its package
lists it as deferred. Either way the import stands at the head of the module, where people, type checkers and the tests
of the layers see it. Loading is the import system's own: it happens once, other threads wait for it, and what failed or
was interrupted is tried again at the next use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Deferred:
    """Stands for a module until it is used, and shares its namespace from then on.

    The namespace is shared, not copied, so that what is patched in the module is patched here, and an attribute costs
    no more than that of any object. ``importlib.util.LazyLoader`` was rejected: before Python 3.12 a second thread can
    see a module that the first one is still loading.
    """

    __name__: str

    def __init__(self, name: str) -> None:
        self.__dict__["__name__"] = name

    def __getattr__(self, name: str) -> object:
        return getattr(_loaded(self), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(_loaded(self), name, value)  # or the first use would forget it

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}, loaded when it is used>"


def _loaded(one: _Deferred) -> object:
    module = _module_named(one.__name__)
    object.__setattr__(one, "__dict__", module.__dict__)
    return module


def _module_named(name: str) -> ModuleType:
    return import_module(name)


class _Optional(_Deferred):
    """Stands for a module of a package that may not be installed."""

    def __init__(self, name: str, missing: Callable[[str], Exception]) -> None:
        super().__init__(name)
        self.__dict__["_missing"] = missing

    def __getattr__(self, name: str) -> object:
        try:
            return super().__getattr__(name)
        except ModuleNotFoundError as error:
            package = self.__name__.partition(".")[0]
            if (error.name or "").partition(".")[0] != package:
                raise
            missing: Callable[[str], Exception] = self.__dict__["_missing"]
            raise missing(package) from error


def optional_module(name: str, missing: Callable[[str], Exception]) -> Any:
    """Return a stand-in for a module of another package, which is loaded when it is first used.

    ``missing`` returns the error to raise if the package is not installed, whose name it gets.

    Examples:
        >>> optional_module("xml.dom", ImportError).Node.TEXT_NODE
        3
        >>> optional_module("no_such_package.part", ImportError).anything
        Traceback (most recent call last):
        ...
        ImportError: no_such_package
    """
    return _Optional(name, missing)


def deferred_modules(package: str, *names: str) -> Callable[[str], object]:
    """Return a ``__getattr__`` for the ``__init__`` of a package: these modules are loaded when they are first used.

    Examples:
        >>> find = deferred_modules("xml", "dom")
        >>> dom = find("dom")
        >>> dom
        <module 'xml.dom', loaded when it is used>
        >>> dom.Node.TEXT_NODE
        3
        >>> find("nothing")
        Traceback (most recent call last):
        ...
        AttributeError: module 'xml' has no attribute 'nothing'
    """
    known = frozenset(names)

    def find(name: str) -> object:
        if name in known:
            return _Deferred(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


def lazy_names(package: str, names_of: Mapping[str, str]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for the ``__init__`` of a package: its names are loaded from their modules at first use.

    ``names_of``: the names, separated by spaces, by the path of their module below the package.

    Examples:
        >>> find = lazy_names("xml", {"dom": "Node XMLNS_NAMESPACE"})
        >>> find("Node").TEXT_NODE
        3
    """
    home = {name: module for module, names in names_of.items() for name in names.split()}

    def find(name: str) -> object:
        module = home.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        loaded, namespace = _module_named(f"{package}.{module}"), vars(sys.modules[package])
        for public in names_of[module].split():
            namespace[public] = getattr(loaded, public)
        return namespace[name]

    return find


class ModuleTable(Generic[T]):
    """One object for each name, which a module has: the module is loaded when its name is first looked up.

    Attributes:
        attribute: the name of the object in each module.
        modules: the dotted paths of the modules, by name.

    Examples:
        >>> nodes = ModuleTable[type]("Node", {"dom": "xml.dom"})
        >>> nodes["dom"].TEXT_NODE
        3
        >>> "sax" in nodes
        False
    """

    def __init__(self, attribute: str, modules: Mapping[str, str]) -> None:
        self._attribute = attribute
        self._modules = modules
        self._known: dict[str, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known or name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(list(dict.fromkeys((*self._modules, *self._known))))

    def __getitem__(self, name: str) -> T:
        if name not in self._known:
            self._known[name] = getattr(_module_named(self._modules[name]), self._attribute)
        known: T = self._known[name]
        return known

    def register(self, name: str, value: T) -> None:
        """Add an object under a new name. Raises ValueError for a name that is taken."""
        if name in self:
            raise ValueError(f"{name!r} is taken")
        self._known[name] = value

    @contextmanager
    def registered(self, name: str, value: T) -> Generator[None]:
        """Add an object under a new name for the duration of a with block."""
        self.register(name, value)
        try:
            yield
        finally:
            del self._known[name]
