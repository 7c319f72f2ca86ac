"""The options of a class besides its fields: class keywords, ``class Meta``, and inherited options.

Rules of this module: an unknown name is refused with a suggestion; everything that does not depend on the fields is
checked here. A collection belongs to one class and is never inherited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, cast

from pydantic import ConfigDict

from kvmodels._support import suggest as spelling
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.declarations import DeclaredIndex
from kvmodels.schema.declare.history import History
from kvmodels.schema.definition.upgrades import Upgrade, declared_upgrades, marked_functions

LONGEST_TTL_S = 1e11
"""About 3,000 years, within the range of timedelta."""

_OF_COLLECTIONS = ("collection", "discriminator", "history", "ordering", "schema_version", "ttl", "upgrades")
"""Options that belong to the first class of a collection with several."""

META_OPTIONS = sorted((*_OF_COLLECTIONS, "abstract", "indexes", "trust_validators"))


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The resolved options of one class.

    Attributes:
        abstract: the class only passes fields and options to subclasses; it has no collection and no repository.
        collection: the first part of the key of every record; empty for an abstract class.
        indexes: the indexes declared in ``Meta``, those of abstract parents, and of parents from whose ``Meta`` it
            derives, first.
        schema_version: 1 or more; stored in every record if it is above 1.
        trust_validators: skip the proof that validators are idempotent.
        ttl_ms: the default lifetime of a new record in milliseconds; None: no deadline.
        upgrades: the upgrades from older schema versions, including those of abstract parents, by version.
        discriminator: the field that distinguishes the classes of one collection; None if there is only one class.
        history: the declared history; None if old versions are not kept.
        ordering: the names of the default order, with ``-`` for a descending one; empty if there is none.
    """

    abstract: bool
    collection: str
    indexes: tuple[DeclaredIndex, ...]
    schema_version: int
    trust_validators: bool
    ttl_ms: int | None
    upgrades: tuple[Upgrade, ...] = ()
    discriminator: str | None = None
    history: History | None = None
    ordering: tuple[str, ...] = ()


def options_of(cls: Any) -> ModelOptions | None:
    """Return the resolved options of a class itself; None for anything else than a finished model class."""
    options: ModelOptions | None = getattr(cls, "__dict__", {}).get("__kv_options__")
    return options


def check_class_keywords(model: str, keywords: Iterable[str]) -> None:
    """Refuse class keywords that neither this library nor pydantic has, and suggest a similar name."""
    for name in keywords:
        raise ModelDefinitionError(
            "a keyword of a model class does not exist",
            model=model,
            option=name,
            suggestion=spelling.closest(name, ("collection", "abstract", "discriminator", *ConfigDict.__annotations__)),
            hint="Keywords are collection, abstract, discriminator and the settings of pydantic's ConfigDict.",
        )


def check_name(model: str, what: str, name: Any) -> str:
    """Return a collection or index name if it can be part of a key."""
    if not isinstance(name, str) or not re.fullmatch(r"(?!__kvmodels__)[^~\ud800-\udfff]+", name):
        raise ModelDefinitionError(
            "a name cannot be used in keys",
            model=model,
            option=f"{what} {name!r}",
            hint="Use a text without ~ and surrogates that does not begin with __kvmodels__.",
        )
    return name


def resolve_options(
    cls: type[Any], keywords: Mapping[str, Any], parents: Iterable[ModelOptions], origin: ModelOptions | None
) -> ModelOptions:
    """Return the options of a class; ``origin`` has those of ``Box`` for a parametrised ``Box[int]``."""
    name = cls.__name__
    declared = _declared(cls, keywords)
    parents = tuple(parents)
    united = [parent for parent in parents if parent.discriminator is not None]
    _refuse_own_options(name, declared, united)
    if united:
        declared["schema_version"] = united[0].schema_version
    if origin is not None:
        declared.setdefault("abstract", origin.abstract)
        declared.setdefault("schema_version", origin.schema_version)
    abstract = _boolean(name, declared, "abstract", default=False)
    inherited = [parent for parent in parents if parent.abstract or parent is origin or parent in united]
    named = _parents_of_meta(cls)
    of_meta = [parent for parent in parents if parent in inherited or parent in named]
    trusts = any(parent.trust_validators for parent in parents)
    version = _version(name, declared)
    return ModelOptions(
        abstract=abstract,
        collection="" if abstract else _collection(name, declared, united),
        indexes=tuple(
            dict.fromkeys(index for parent in reversed(of_meta) for index in parent.indexes)
            | dict.fromkeys(_indexes(name, declared))
        ),
        schema_version=version,
        trust_validators=_boolean(name, declared, "trust_validators", default=trusts),
        ttl_ms=_lifetime(name, declared, of_meta),
        upgrades=_upgrades(cls, declared, parents, inherited, version),
        discriminator=united[0].discriminator if united else _discriminator(name, declared),
        history=_history(name, declared, of_meta),
        ordering=_ordering(name, declared, of_meta),
    )


def _parents_of_meta(cls: type[Any]) -> list[ModelOptions]:
    """Return the options of the parents whose ``Meta`` that of the class derives from: ``class Meta(Parent.Meta)``."""
    metas = vars(cls)["Meta"].__mro__[1:-1] if "Meta" in vars(cls) else ()
    found = [options_of(base) for base in cls.__mro__[1:] if vars(base).get("Meta") in metas]
    return [one for one in found if one is not None]


def _declared(cls: type[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a class itself declares, in its ``Meta`` and its keywords."""
    declared = _meta(cls)
    for key, value in keywords.items():
        if key in declared:
            raise ModelDefinitionError(
                "an option is given twice",
                model=cls.__name__,
                option=key,
                hint="Give it as class keyword or in Meta.",
            )
        declared[key] = value
    return declared


def _refuse_own_options(model: str, declared: Mapping[str, Any], united: list[ModelOptions]) -> None:
    """Refuse collection options on an abstract class, and on one that shares the collection of its parent."""
    given = [option for option in _OF_COLLECTIONS if option in declared]
    if united and given:
        raise ModelDefinitionError(
            "an option belongs to the first class of a collection with several",
            model=model,
            option=given[0],
            hint="Leave it out: the class is stored in the collection of the class that it derives from.",
        )
    if len({parent.collection for parent in united if parent.collection}) > 1:
        raise ModelDefinitionError(
            "a class derives from classes of two collections",
            model=model,
            option="discriminator",
            hint="Derive it from one of them.",
        )
    remedies = {
        "collection": "Give the collection to the classes that derive from it.",
        "discriminator": "Leave out abstract: without a Literal field of that name it has no records of its own "
        "anyway.",
    }
    for option, remedy in remedies.items():
        if option in declared and declared.get("abstract") is True:
            raise ModelDefinitionError("an abstract model has no collection", model=model, option=option, hint=remedy)


def _discriminator(model: str, declared: Mapping[str, Any]) -> str | None:
    name = declared.get("discriminator")
    if name is None or (isinstance(name, str) and name.isidentifier()):
        return name
    raise ModelDefinitionError(
        "a discriminator is not the name of a field",
        model=model,
        option="discriminator",
        hint='Write discriminator="kind", and kind: Literal["circle"] = "circle" in each class.',
    )


def _meta(cls: type[Any]) -> dict[str, Any]:
    meta: type[Any] | None = cls.__dict__.get("Meta")
    if meta is None:
        return {}
    # Of `class Meta(Base.Meta)`, indexes and lifetime are inherited; other options belong to the collection of Base.
    of_parents = {base.__dict__.get("Meta") for base in cls.__mro__[1:]}
    options: dict[str, Any] = {}
    for part in reversed([part for part in meta.__mro__ if part is not object and part not in of_parents]):
        options.update((key, value) for key, value in vars(part).items() if not key.startswith("__"))
    for key in options:
        if key not in META_OPTIONS:
            raise ModelDefinitionError(
                "an option of Meta does not exist",
                model=cls.__name__,
                option=key,
                suggestion=spelling.closest(key, META_OPTIONS),
                hint=f"Options of Meta are {', '.join(META_OPTIONS)}.",
            )
    return options


def _collection(model: str, declared: Mapping[str, Any], united: Iterable[ModelOptions]) -> str:
    shared = next((parent.collection for parent in united if parent.collection), None)
    return shared or check_name(model, "collection", declared.get("collection", _snake_case(model)))


def _snake_case(name: str) -> str:
    """Return ``http_request2_log`` for ``HTTPRequest2Log``, and ``box_int`` for ``Box[int]``."""
    words = re.sub(r"[^\w]+", "_", name).strip("_")
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", words)
    return re.sub(r"_+", "_", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", words)).lower()


def _indexes(model: str, declared: Mapping[str, Any]) -> tuple[DeclaredIndex, ...]:
    indexes = declared.get("indexes", ())
    if isinstance(indexes, (list, tuple)):
        found = cast("list[Any]", indexes)
        if all(isinstance(index, DeclaredIndex) for index in found):
            return tuple(found)
    raise ModelDefinitionError(
        "Meta.indexes is not a tuple of indexes",
        model=model,
        option="indexes",
        hint='Write indexes = (Index("country", "-elevation"),), with the comma.',
    )


def _boolean(model: str, declared: Mapping[str, Any], option: str, *, default: bool) -> bool:
    value = declared.get(option, default)
    if not isinstance(value, bool):
        raise ModelDefinitionError("an option takes True or False", model=model, option=option, hint="Give a bool.")
    return value


def _version(model: str, declared: Mapping[str, Any]) -> int:
    version = declared.get("schema_version", 1)
    if type(version) is not int or version < 1:
        raise ModelDefinitionError(
            "a schema version is not a whole number from 1 on",
            model=model,
            option="schema_version",
            hint="Count it up by one with every incompatible change.",
        )
    return version


def _upgrades(
    cls: type[Any],
    declared: Mapping[str, Any],
    parents: Iterable[ModelOptions],
    inherited: Iterable[ModelOptions],
    version: int,
) -> tuple[Upgrade, ...]:
    """Return the upgrades of the class, its abstract parents and mixins; not of a parent with its own collection."""
    if any(parent.discriminator is not None for parent in parents) and any(marked_functions(cls)):
        raise ModelDefinitionError(
            "a class that shares a collection declares its own upgrade",
            model=cls.__name__,
            option="upgrade",
            hint="Declare it in the first class of the collection: the function sees the discriminator.",
        )
    foreign = {id(parent) for parent in parents} - {id(parent) for parent in inherited}
    classes = [base for base in cls.__mro__ if id(options_of(base)) not in foreign]
    of_parents = dict.fromkeys(one for parent in inherited for one in parent.upgrades)
    found = declared_upgrades(cls, classes, declared.get("upgrades", ()), of_parents)
    beyond = [one for one in found if one.to > version]
    if not beyond or _boolean(cls.__name__, dict(declared), "abstract", default=False):
        return found
    if {"schema_version", "upgrades"} & declared.keys() or any(marked_functions(cls)):
        raise ModelDefinitionError(
            "an upgrade leads to a higher schema version than the declared one",
            model=cls.__name__,
            option=f"to={beyond[0].to}",
            hint=f"Write schema_version = {beyond[-1].to} in Meta.",
        )
    return tuple(one for one in found if one.to <= version)  # of a parent with its own version numbers


def _history(model: str, declared: Mapping[str, Any], inherited: Iterable[ModelOptions]) -> History | None:
    """Return the declared history, or that of the nearest parent that declares one."""
    if "history" not in declared:
        return next((one.history for one in inherited if one.history is not None), None)
    history = declared["history"]
    if history is None or isinstance(history, History):
        return history
    raise ModelDefinitionError(
        "Meta.history is not a History",
        model=model,
        option="history",
        hint="Write history = History(), or History(keep=timedelta(days=365)).",
    )


def _ordering(model: str, declared: Mapping[str, Any], inherited: Iterable[ModelOptions]) -> tuple[str, ...]:
    """Return the declared default order, or that of the nearest parent that declares one."""
    if "ordering" not in declared:
        return next((one.ordering for one in inherited if one.ordering), ())
    ordering = declared["ordering"]
    if isinstance(ordering, (list, tuple)):
        found = cast("list[Any]", ordering)
        if all(isinstance(name, str) for name in found):
            return tuple(found)
    raise ModelDefinitionError(
        "Meta.ordering is not a tuple of names of fields",
        model=model,
        option="ordering",
        hint='Write ordering = ("-created",), with the comma.',
    )


def _lifetime(model: str, declared: Mapping[str, Any], inherited: Iterable[ModelOptions]) -> int | None:
    """Return the declared lifetime, or that of the nearest parent that declares one."""
    if "ttl" not in declared:
        return next((one.ttl_ms for one in inherited if one.ttl_ms is not None), None)
    ttl = declared["ttl"]
    if ttl is None:
        return None
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= LONGEST_TTL_S:
        raise ModelDefinitionError(
            "a lifetime is not a positive number of seconds",
            model=model,
            option="ttl",
            hint="Write ttl = 3600 or ttl = timedelta(hours=1), or leave it out for records without a deadline.",
        )
    return max(1, round(seconds * 1_000))
