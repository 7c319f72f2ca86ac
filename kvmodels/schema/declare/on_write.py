"""Hooks that run before and after a write, and the fields AutoNow, AutoNowAdd and Version, which every write sets.

``create(expire_in=60)`` sets a deadline; a field named ``expire_in`` would silently keep its default. So a field with
the name of an option of a write method is refused when the class is created.

A field that the library sets has its own default factory, so that pydantic does not require a value; the factory
returns the value that an object has before it is first stored.

Rules of this module: the hooks of a class are found once, when it is compiled; a method that cannot work as a hook is
refused then. Hooks of ``KvModel`` itself do nothing and count as absent. A test compares the table of reserved names
with the signatures of the repositories and query sets. Values come from the clock of the engine and from the stored
record, never from the caller. ``Field`` creates pydantic's ``FieldInfo``; afterwards only its metadata changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, unwrap
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

from pydantic import AwareDatetime
from pydantic.fields import FieldInfo

from kvmodels._support.annotations import signature_of
from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import ModelDefinitionError
from kvmodels.schema.declare.markers import AutomaticKey, Field

HookName = Literal["before_insert", "before_update", "before_remove", "after_insert", "after_update", "after_remove"]
HOOK_NAMES: Final[tuple[HookName, ...]] = get_args(HookName)

F = TypeVar("F", bound=Callable[..., Any])

_DOES_NOTHING: Final = "__kv_no_hook__"


class Hooks(NamedTuple):
    """The functions to call for records of one class, in order, with the object and, for an update, the old one."""

    before_insert: tuple[Callable[[Any], object], ...] = ()
    before_update: tuple[Callable[[Any, Any], object], ...] = ()
    before_remove: tuple[Callable[[Any], object], ...] = ()
    after_insert: tuple[Callable[[Any], object], ...] = ()
    after_update: tuple[Callable[[Any, Any], object], ...] = ()
    after_remove: tuple[Callable[[Any], object], ...] = ()


def no_hook(method: F) -> F:
    """Mark a method of the base class that does nothing and is never called."""
    setattr(method, _DOES_NOTHING, True)
    return method


def is_asynchronous(function: Any) -> bool:
    """Return whether a call only creates a coroutine or asynchronous generator, which would never be awaited.

    Examples:
        >>> async def wait() -> None: ...
        >>> is_asynchronous(wait), is_asynchronous(print)
        (True, False)
    """
    inner = unwrap(getattr(function, "func", function))  # for functools.partial
    kind: type[Any] = inner.__class__
    called = getattr(kind, "__call__", None)  # noqa: B004 - what is asked is whether that is a coroutine
    return any(iscoroutinefunction(one) or isasyncgenfunction(one) for one in (inner, called))


def check_hooks(model: type[Any]) -> None:
    """Refuse a hook that is asynchronous, takes other arguments, or is hidden by the base class."""
    for name in HOOK_NAMES:
        refused = partial(ModelDefinitionError, model=model.__name__, option=name)
        method = getattr(model, name)
        if getattr(method, _DOES_NOTHING, False):
            _check_hidden(model, name)
            continue
        if is_asynchronous(method):
            raise refused(
                "a hook is asynchronous",
                hint="Hooks run inside of a write and cannot wait: write def. Start a task in after_* for the rest.",
            )
        takes = ("self", "old") if name.endswith("_update") else ("self",)
        try:
            signature_of(method).bind(*takes)
        except TypeError:
            hint = f"Write def {name}({', '.join(takes)}) -> None."
            raise refused("a hook takes other arguments", hint=hint) from None


def _check_hidden(model: type[Any], name: str) -> None:
    for base in model.__mro__:
        method = base.__dict__.get(name)
        if method is not None and not getattr(method, _DOES_NOTHING, False):
            raise ModelDefinitionError(
                "the hook of a mixin is hidden by that of KvModel",
                model=model.__name__,
                option=f"{base.__name__}.{name}",
                hint=f"Put the mixin first: class {model.__name__}({base.__name__}, KvModel).",
            )


def model_hooks(model: type[Any]) -> Hooks | None:
    """Return the hooks that a class has or inherits; None if there are none."""
    methods = {name: getattr(model, name) for name in HOOK_NAMES}
    found = {name: (method,) for name, method in methods.items() if not getattr(method, _DOES_NOTHING, False)}
    return Hooks(**found) if found else None


VERB_KEYWORDS: Final[Mapping[str, str]] = {
    "expire_in": "create",
    "if_version": "patch",
    "defaults": "get_or_create",
    "create_defaults": "update_or_create",
    "batch_size": "update",
    "on_error": "update",
    "progress": "update",
    "resume_id": "update",
}
"""For each reserved name, a method that has it as an option."""


def refuse_verb_keyword(model: str, field: str) -> None:
    """Refuse a field whose name is an option of a write method, because a call could not set the field."""
    verb = VERB_KEYWORDS.get(field)
    if verb is not None:
        raise ModelDefinitionError(
            "the name of a field is reserved for an option of a verb",
            model=model,
            field=field,
            option=verb,
            hint=f"It is an option of {verb}. Rename the field, such as {field}_. If records are stored under this "
            "name, raise Meta.schema_version and move the value in an upgrade function.",
        )


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Kind = Literal["AutoNow", "AutoNowAdd", "Version"]


class Automatic:
    """The default factory of a field that the library sets, and the kind of this field."""

    def __init__(self, kind: Kind) -> None:
        self.kind: Kind = kind
        self._unset: Any = 0 if kind == "Version" else EPOCH

    def __call__(self) -> Any:
        """Return the value before the first write."""
        return self._unset

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        # Used while pydantic creates the validator of a class, before its first object exists.
        if NoneType in get_args(source):
            self._unset = None
        elif source is date:
            self._unset = EPOCH.date()
        return handler(source)

    def __repr__(self) -> str:
        return f"{self.kind}()"


@dataclass(frozen=True, slots=True)
class TimeField:
    """A field that is set by every write; with ``is_date`` it holds a UTC date."""

    name: str
    automatic: Automatic
    is_date: bool

    def first(self, now_ms: int) -> Any:
        """Return the value for a new record."""
        return 1 if self.automatic.kind == "Version" else self._moment(now_ms)

    def next(self, stored: Any, now_ms: int, *, counted: bool = False) -> Any:
        """Return the value for a changed record, given the stored value.

        ``counted`` means that ``stored`` is from the same commit, which counts as one change however often it writes
        the record.
        """
        if self.automatic.kind == "Version":
            return stored if counted else (stored or 0) + 1
        return stored if self.automatic.kind == "AutoNowAdd" else self._moment(now_ms)

    def _moment(self, now_ms: int) -> Any:
        moment = EPOCH + timedelta(milliseconds=now_ms)
        return moment.date() if self.is_date else moment


_AWARE: Any = AwareDatetime


def automatic_of(info: FieldInfo) -> Automatic | None:
    """Return the default factory of a field that the library sets; None for any other field."""
    factory = info.default_factory
    return factory if isinstance(factory, Automatic) else None


def time_fields(model: type[Any], types: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[TimeField]:
    """Yield the fields of a model that the library sets.

    ``types`` holds the annotation of each field without None and Annotated, ``keys`` the fields of the primary key.
    Raises ModelDefinitionError for a type that cannot hold the value, and for a field of the primary key.
    """
    for name, info in model.model_fields.items():
        automatic = automatic_of(info)
        if automatic is None:
            continue
        allowed = (int,) if automatic.kind == "Version" else (datetime, date, _AWARE)
        refused = partial(ModelDefinitionError, model=model.__name__, field=name, option=automatic.kind)
        if types[name] not in allowed:
            raise refused(
                "a field has a type that the library cannot set",
                hint="Version() is for int." if automatic.kind == "Version" else "It is for datetime and date.",
            )
        if name in keys:
            raise refused(
                "a field of the primary key changes by itself",
                hint="A primary key never changes: use Field(default_factory=ULID), which holds the time too.",
            )
        yield TimeField(name, automatic, types[name] is date)


def automatic_key(model: type[Any], types: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """Return the field whose values the store gives out; None if there is none. Arguments as for ``time_fields``."""
    fields: Mapping[str, FieldInfo] = model.model_fields
    automatic = [name for name, info in fields.items() if isinstance(info.default, AutomaticKey)]
    for name in automatic:
        if keys != (name,) or types[name] is not int:
            raise ModelDefinitionError(
                "a field with AUTO is not an integer primary key",
                model=model.__name__,
                field=name,
                option="AUTO",
                hint=f"Write {name}: PrimaryKey[int] = Field(default=AUTO), without other fields in the primary key.",
            )
    return automatic[0] if automatic else None


def AutoNow(*, init: Literal[False] = False, **options: Any) -> Any:  # noqa: N802 - it stands for the value of a field
    """Declare a field for the time of the last write by the engine's clock: UTC, to the millisecond.

    Every insert and change sets it, whatever value the object has; builds, repairs and migrations keep it. For
    ``datetime`` and ``date``. An object that was never stored has 1970-01-01, or None if the field is optional, and so
    has a record that was stored before the field existed.

    Args:
        init: for type checkers: the constructor does not require the field.
        options: keywords of ``Field`` except defaults, such as ``description``.

    Returns:
        The result of ``Field``.

    Raises:
        ModelDefinitionError: an unknown option, or a default.

    Examples:
        >>> from datetime import datetime
        >>> from kvmodels import AutoNow, Database, Indexed, KvModel, PrimaryKey
        >>> class Page(KvModel, collection="pages"):
        ...     id: PrimaryKey[int]
        ...     updated_at: Indexed[datetime] = AutoNow()
        >>> pages = Database("memory://", models=[Page], clock=lambda: 1_000)[Page]
        >>> pages.create(id=1).updated_at.isoformat()
        '1970-01-01T00:00:01+00:00'
    """
    return _field("AutoNow", init, options)


def AutoNowAdd(*, init: Literal[False] = False, **options: Any) -> Any:  # noqa: N802 - as above
    """Declare a field for the time of the first write; like ``AutoNow``, but later writes keep the stored value.

    Args:
        init: for type checkers: the constructor does not require the field.
        options: keywords of ``Field`` except defaults, such as ``description``.

    Returns:
        The result of ``Field``.

    Raises:
        ModelDefinitionError: an unknown option, or a default.
    """
    return _field("AutoNowAdd", init, options)


def Version(*, init: Literal[False] = False, **options: Any) -> Any:  # noqa: N802 - as above
    """Declare a field for the number of changes of a record: 1 after the insert, plus one per commit that writes it.

    For ``int``. An object that was never stored has 0, and so has a record that was stored before the field existed.

    Args:
        init: for type checkers: the constructor does not require the field.
        options: keywords of ``Field`` except defaults, such as ``description``.

    Returns:
        The result of ``Field``.

    Raises:
        ModelDefinitionError: an unknown option, or a default.
    """
    return _field("Version", init, options)


def _field(kind: Kind, init: object, options: dict[str, Any]) -> Any:
    given = options.keys() if init is False else {*options, "init"}
    for name in ("default", "default_factory", "validate_default", "init"):
        if name in given:
            raise ModelDefinitionError(
                "an option of a field that the library sets has no effect",
                option=f"{kind}({name}=)",
                hint="Leave it out: every write sets the value.",
            )
    automatic = Automatic(kind)
    # In interface documents this states that clients do not supply the value.
    options.setdefault("json_schema_extra", {"readOnly": True})
    info: FieldInfo = Field(default_factory=automatic, **options)
    info.metadata.append(automatic)
    return info


show_public_path(AutoNow, AutoNowAdd, Version)
