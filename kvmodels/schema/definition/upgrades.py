"""Upgrade functions, which convert records of an older schema version to the declared version when they are read.

Rules of this module: a function takes a stored document and returns that of the next version. It may change only the
fields that it declares: index entries are made from the stored form, and an index on other fields stays in use. A wrong
declaration is refused when the class is created. A fault of a function raises a DecodeError that names the record, and
the record is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Final, cast

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import DecodeError, ModelDefinitionError
from kvmodels.schema.definition.definition import Document
from kvmodels.schema.definition.values import COMPUTED, RESERVED_FIELD, same_stored

_MARK: Final = "__kv_upgrade__"

UpgradeFunction = Callable[[Document], Document]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """One upgrade of the stored form of a model, for ``Meta.upgrades``; ``@upgrade`` declares the same on a function.

    Args:
        to: the resulting schema version, 2 or more; the function is applied to records of lower versions.
        function: takes the stored fields of a record by name and returns them in the form of the new version. It must
            depend on nothing else, because it runs at every read of a record that was not rewritten yet.
        touches: the names of all fields that it adds, changes, fills or removes.

    Examples:
        >>> def split(document):
        ...     document["first"], _, document["last"] = document.pop("name").partition(" ")
        ...     return document
        >>> Upgrade(2, split, touches=("name", "first", "last")).to
        2
    """

    to: int
    function: UpgradeFunction
    touches: tuple[str, ...] = ()


def upgrade(
    *, to: int, touches: Iterable[str]
) -> Callable[
    [Callable[..., Document] | staticmethod[[Document], Document] | classmethod[Any, [Document], Document]],
    staticmethod[[Document], Document],
]:
    """Declare a function in the body of a model as an upgrade to a schema version; see ``Upgrade``.

    Args:
        to: the resulting schema version, 2 or more.
        touches: the names of all fields that it changes, adds or removes.

    Returns:
        A decorator for a static or class method; a plain function becomes a static method.

    Raises:
        ModelDefinitionError: when the class is created: the version or the fields are invalid for an upgrade.

    Examples:
        >>> from kvmodels import KvModel, PrimaryKey
        >>> class Person(KvModel, collection="people"):
        ...     id: PrimaryKey[int]
        ...     email: str
        ...
        ...     class Meta:
        ...         schema_version = 2
        ...
        ...     @upgrade(to=2, touches=("email",))
        ...     @staticmethod
        ...     def fold(document):
        ...         return {**document, "email": document["email"].casefold()}
        >>> Person.fold({"id": 1, "email": "Ada@X.org"})
        {'id': 1, 'email': 'ada@x.org'}
    """

    def mark(function: Any) -> Any:
        inner: Any = getattr(function, "__func__", function)
        # Unchecked here: errors are raised with the class, where they can name the model.
        setattr(inner, _MARK, (to, touches))
        return function if inner is not function else staticmethod(function)

    return mark


def marked_functions(cls: type[Any]) -> Iterator[tuple[str, tuple[int, Any]]]:
    """Yield the names of attributes of a class with an ``@upgrade`` mark, and the marks.

    Attributes that pydantic stores in a class are skipped, because reading them would build missing parts of the class.
    """
    for name, value in vars(cls).items():
        mark = None if name.startswith("__") else _marked(value)
        if mark is not None:
            yield name, mark


def _marked(value: Any) -> tuple[int, Any] | None:
    """Return the ``@upgrade`` mark on an attribute of a class, inside any decorators."""
    while value is not None and not hasattr(value, _MARK):
        value = getattr(value, "__func__", None)
    return getattr(value, _MARK, None)


def declared_upgrades(
    model: type[Any], classes: Iterable[type[Any]], listed: object, inherited: Iterable[Upgrade]
) -> tuple[Upgrade, ...]:
    """Return the upgrades of a class by version: ``Meta.upgrades`` and marked functions, nearest class first."""
    given = tuple(cast("Iterable[object]", listed)) if isinstance(listed, (tuple, list)) else (None,)
    found = [one for one in given if isinstance(one, Upgrade)]
    if len(found) < len(given):
        raise ModelDefinitionError(
            "the option upgrades of Meta is not a tuple of upgrades",
            model=model.__name__,
            option="upgrades",
            hint="Give a tuple of Upgrade(version, function, touches=...), with the comma also after a single one.",
        )
    found += [one for one in inherited if one not in found and not hasattr(one.function, _MARK)]
    seen = set[str]()
    for cls in classes:
        for name, mark in marked_functions(cls):
            if name not in seen:
                found.append(Upgrade(mark[0], getattr(model, name), mark[1]))
        seen |= vars(cls).keys()
    checked = [_checked(model.__name__, one) for one in found]
    versions = [one.to for one in checked]
    if len(set(versions)) < len(versions):
        raise ModelDefinitionError(
            "two upgrades lead to one schema version",
            model=model.__name__,
            option=f"to={max(versions, key=versions.count)}",
            hint="Combine them into one function, or raise the schema version again.",
        )
    return tuple(sorted(checked, key=lambda one: one.to))


def _checked(model: str, one: Upgrade) -> Upgrade:
    refused = partial(ModelDefinitionError, model=model)
    to: object = one.to
    if type(to) is not int or to < 2:
        raise refused(
            "the version of an upgrade must be a whole number from 2 on",
            option=f"to={short_repr(one.to)}",
            hint="Records begin with version 1, so the first upgrade is the one to 2.",
        )
    if not callable(one.function):
        raise refused(
            "an upgrade has no function", option=f"to={to}", hint="Give a function from document to document."
        )
    touches = _field_names(one.touches)
    if not touches:
        raise refused(
            "an upgrade does not say which fields it touches",
            option=f"touches={short_repr(one.touches)}",
            hint='Name every field that it changes, adds or removes: touches=("name",). A field of a nested model '
            "belongs to the field that holds the model.",
        )
    return Upgrade(to, one.function, touches)


def _field_names(names: object) -> tuple[str, ...]:
    """Return the items of an iterable if all of them are names of fields; a single str does not count."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        return ()
    found = tuple(cast("Iterable[object]", names))
    return cast("tuple[str, ...]", found) if all(map(_is_field_name, found)) else ()


def _is_field_name(name: object) -> bool:
    return isinstance(name, str) and bool(name) and "." not in name and not name.startswith(RESERVED_FIELD)


def version_of(document: Mapping[str, Any]) -> int:
    """Return the schema version of a stored document; 1 if it has none, 0 if it is invalid.

    Examples:
        >>> version_of({"id": 1}), version_of({"id": 1, "$kv": {"v": 3}})
        (1, 3)
    """
    reserved: Any = document.get(RESERVED_FIELD)
    if reserved is None:
        return 1
    version: Any = cast("dict[str, Any]", reserved).get("v", 1) if type(reserved) is dict else 0
    return version if type(version) is int else 0


def _is_document(value: object) -> bool:
    return type(value) is dict and all(isinstance(name, str) for name in cast("dict[object, object]", value))


class Upgrades:
    """The upgrades of one model, at least one, applied in the order of their versions."""

    def __init__(self, model: str, steps: tuple[Upgrade, ...]) -> None:
        self._model = model
        self._steps = steps
        self._latest = steps[-1].to
        self.touched: Mapping[str, int] = {name: step.to for step in steps for name in step.touches}
        """By field, the highest version whose upgrade touches it."""
        self.versions = frozenset(step.to for step in steps)
        self.in_schema: Mapping[str, Any] = {
            "upgrade": self.apply,
            "touched": self.touched,
            "upgrades_to": self.versions,
        }
        """The arguments of ``ModelSchema`` that describe them."""

    def apply(self, document: Document, key: tuple[Any, ...]) -> Document:
        """Return the document of the declared version; the same document if no upgrade is outstanding.

        Values of computed columns are omitted: they were computed from the former fields, so readers compute them
        again.
        """
        version = version_of(document)
        if not 1 <= version < self._latest:
            return document
        reserved: Any = document.get(RESERVED_FIELD)
        fields = {name: value for name, value in document.items() if name != RESERVED_FIELD}
        for step in self._steps:
            if step.to > version:
                fields = self._stepped(step, fields, key)
        kept = dict[str, Any](reserved or {})
        kept.pop(COMPUTED, None)
        return {**fields, RESERVED_FIELD: {**kept, "v": self._latest}}

    def _stepped(self, step: Upgrade, before: Document, key: tuple[Any, ...]) -> Document:
        try:
            # A copy, so that a change in place is detected and does not affect the entries of the record.
            after = step.function(deepcopy(before))
        except Exception as error:
            missing = error.args[0] if isinstance(error, KeyError) and error.args else None
            field = missing if isinstance(missing, str) and missing in step.touches else None
            raise self._failed(step, key, type(error).__name__, field) from error
        if not _is_document(after):
            raise self._failed(step, key, f"it gave {type(after).__name__}")
        for name in before | after:  # in field order, so that the error always names the same field
            if name in step.touches:
                continue
            if name not in after or name not in before or not same_stored(before[name], after[name]):
                raise self._failed(step, key, f"it changed {name!r}, which it does not declare to touch", name)
        return after

    def _failed(self, step: Upgrade, key: tuple[Any, ...], reason: str, field: str | None = None) -> DecodeError:
        return DecodeError(
            "an upgrade of a stored record failed",
            key=key,
            model=self._model,
            field=field or (step.touches[0] if len(step.touches) == 1 else None),
            reason=f"upgrade to {step.to}: {reason}",
            hint="The record is unchanged. Correct the function, or the record with kv.unsafe(): an upgrade must "
            "accept every record of the versions below its own.",
        )


show_public_path(Upgrade, upgrade)
