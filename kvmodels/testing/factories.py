"""Factories of test records, based on polyfactory.

Rules of this module: a factory builds an object from the types of its fields; what a store demands besides types is
added here: distinct values in unique fields, values that every kind of index holds, and targets of foreign keys. The
factories are not registered as base factories of polyfactory, which would use them for the models of all other
factories of the process.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from random import Random
from string import ascii_lowercase
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from polyfactory.factories.base import BaseFactory, BuildContext
from polyfactory.factories.pydantic_factory import ModelFactory
from polyfactory.field_meta import FieldMeta
from pydantic import BaseModel, EmailStr

from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._sync.database import Database
from kvmodels.core.ulid import ULID
from kvmodels.errors import AlreadyExistsError, ExclusionViolationError, InvalidArgumentError, UniqueViolationError
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.definition.definition import Reference
from kvmodels.schema.definition.kinds import KINDS
from kvmodels.schema.definition.variants import constructor_of

M = TypeVar("M", bound=KvModel)
N = TypeVar("N", bound=KvModel)

T = TypeVar("T", bound=BaseModel)

_MOST_DRAWS: Final = 1_000
_TRIES: Final = 100
"""How many intervals are drawn for a calendar before it counts as full."""

_TAKEN: Final = (AlreadyExistsError, UniqueViolationError, ExclusionViolationError)
_LENGTHS: Final = frozenset({"min_length", "max_length"})
_USUAL_ADDRESS: Final = 20
_LONGEST_NAME: Final = 64
_LONGEST_ADDRESS: Final = 120
"""The lengths of the addresses that factories make, and the longest name in front of the @."""

_Inserts = Generator[KvModel, KvModel, KvModel]


class _ValueFactory(ModelFactory[T], Generic[T]):
    """Makes values that a store accepts; the factory of nested models."""

    __is_base_factory__ = True

    @classmethod
    def get_provider_map(cls) -> dict[Any, Any]:
        """Return the functions that make values by type: a datetime has a time zone, as indexes demand."""
        return {
            **super().get_provider_map(),
            ULID: ULID,
            datetime: lambda: cls.__faker__.date_time_this_decade(tzinfo=UTC),
        }

    @classmethod
    def get_constrained_field_value(
        cls,
        annotation: Any,
        field_meta: FieldMeta,
        field_build_parameters: Any | None = None,
        build_context: BuildContext | None = None,
    ) -> Any:
        """Return a random value of a type with constraints; also of an address with a length."""
        constraints = cast("dict[str, Any]", field_meta.constraints or {})
        if annotation is EmailStr and _LENGTHS.issuperset(constraints):
            lengths = constraints.get("min_length") or 0, constraints.get("max_length") or _LONGEST_ADDRESS
            return _address(cls.__random__, field_meta.name, *lengths)
        return super().get_constrained_field_value(annotation, field_meta, field_build_parameters, build_context)

    @classmethod
    def _get_or_create_factory(cls, model: type[Any]) -> type[BaseFactory[Any]]:
        is_model = isinstance(cast("object", model), type) and issubclass(model, BaseModel)
        chosen = model in cls._factory_type_mapping or bool(cls.__base_factory_overrides__)
        if is_model and not chosen:
            return _ValueFactory.create_factory(model, **cls._get_config())
        return super()._get_or_create_factory(model)


class KvFactory(_ValueFactory[M], Generic[M]):
    """Builds and stores test records of a model; subclass it, or use ``KvFactory.of(User)``.

    Fields without a default get random values of their types, as in every factory of polyfactory; class attributes,
    ``seed_random()`` and its other options work. Values of primary keys and unique indexes never repeat within a
    factory. ``create`` also stores a new target for each required foreign key that is not given.

    Attributes:
        __targets__: the factory of the targets of a foreign key by its field, if not that of ``of(Target)``.

    Examples:
        >>> from kvmodels import Database, ForeignKey, PrimaryKey, Unique
        >>> class Author(KvModel, collection="authors"):
        ...     id: PrimaryKey[int]
        ...     email: Unique[str]
        >>> class Book(KvModel, collection="books"):
        ...     id: PrimaryKey[int]
        ...     title: str
        ...     author_id: ForeignKey[int, Author]
        >>> class BookFactory(KvFactory[Book]):
        ...     title = "Emma"
        >>> with Database("memory://", models=[Author, Book]) as db:
        ...     books = BookFactory.create_batch(db, 3)
        ...     ada = KvFactory.of(Author).create(db, email="ada@example.org")
        ...     one = BookFactory.create(db, author_id=ada.id)
        ...     one.title, db[Book].count(), db[Author].count()
        ('Emma', 4, 4)
    """

    __is_base_factory__ = True
    __use_defaults__ = True
    __targets__: ClassVar[Mapping[str, type[KvFactory[Any]]]] = {}
    _given: ClassVar[set[tuple[str, Any]]]
    _factories: ClassVar[dict[type[KvModel], type[KvFactory[Any]]]]

    def __init_subclass__(cls, *args: Any, **kwargs: Any) -> None:
        super().__init_subclass__(*args, **kwargs)
        cls._given, cls._factories = set(), {}
        _forget(cls)

    @staticmethod
    def of(model: type[N]) -> type[KvFactory[N]]:
        """Return a new factory of a model, without a class statement."""
        return cast("type[KvFactory[N]]", KvFactory.create_factory(model))

    @classmethod
    def process_kwargs(cls, **kwargs: Any) -> dict[str, Any]:
        """Return the values of all fields, which every index of the model can hold unless they are given.

        Raises:
            UnknownFieldError: a name is not a field.
        """
        constructor_of(cls.__model__).require_names(name for name in kwargs if not name.startswith("_"))
        values = super().process_kwargs(**kwargs)
        schema = schema_of(cls.__model__)
        free = {name for name in values if name not in kwargs and not hasattr(cls, name)}
        for index in schema.indexes.values():
            values |= KINDS[index.kind].fitted(index.options, values, free, cls.__random__.randint)
        return values

    @classmethod
    def should_use_default_value(cls, field_meta: FieldMeta) -> bool:
        """Return whether a field keeps its default: the factory has no attribute of its name."""
        return not hasattr(cls, field_meta.name) and super().should_use_default_value(field_meta)

    @classmethod
    def get_field_value(
        cls,
        field_meta: FieldMeta,
        field_build_parameters: Any | None = None,
        build_context: BuildContext | None = None,
    ) -> Any:
        """Return a random value of a field; one that it has not returned before if the field is unique.

        Raises:
            InvalidArgumentError: the type has too few values.
        """
        for _ in range(_MOST_DRAWS):
            value = super().get_field_value(field_meta, field_build_parameters, build_context)
            if field_meta.name not in _unique_fields(cls.__model__):
                return value
            # Unique indexes may fold case.
            drawn = (field_meta.name, value.casefold() if isinstance(value, str) else value)
            if drawn not in cls._given:
                cls._given.add(drawn)
                return value
        raise InvalidArgumentError(
            "the factory has used every value of a unique field",
            argument=field_meta.name,
            value=cls.__model__.__name__,
            hint="Give the value in the call, or a function as a class attribute of the factory.",
        )

    @classmethod
    def create(cls, db: Database, **values: Any) -> M:
        """Build an object and store it, with a new target for each required foreign key that is not in ``values``.

        Each object is one insert, the targets first.

        Args:
            db: a database that declares the model and the targets.
            values: the values of fields; an object of the target for a foreign key.

        Returns:
            The stored object.

        Raises:
            UnknownFieldError: a name is not a field.
            IntegrityError, pydantic.ValidationError: as for ``Repository.insert``.
        """
        inserts = cls._inserts(db.models, values)
        try:
            obj = next(inserts)
            while True:
                try:
                    stored = db[type(obj)].insert(obj)
                except _TAKEN as error:
                    obj = inserts.throw(error)
                else:
                    obj = inserts.send(stored)
        except StopIteration as end:
            return cast("M", end.value)

    @classmethod
    def create_batch(cls, db: Database, size: int, **values: Any) -> list[M]:
        """Store ``size`` objects as ``create`` does."""
        return [cls.create(db, **values) for _ in range(size)]

    @classmethod
    async def acreate(cls, db: AsyncDatabase, **values: Any) -> M:
        """Build an object and store it in an asynchronous database, as ``create`` does."""
        inserts = cls._inserts(db.models, values)
        try:
            obj = next(inserts)
            while True:
                try:
                    stored = await db[type(obj)].insert(obj)
                except _TAKEN as error:
                    obj = inserts.throw(error)
                else:
                    obj = inserts.send(stored)
        except StopIteration as end:
            return cast("M", end.value)

    @classmethod
    async def acreate_batch(cls, db: AsyncDatabase, size: int, **values: Any) -> list[M]:
        """Store ``size`` objects as ``acreate`` does."""
        return [await cls.acreate(db, **values) for _ in range(size)]

    @classmethod
    def _inserts(cls, models: tuple[type[KvModel], ...], values: Mapping[str, Any]) -> _Inserts:
        """Yield each object to insert, and receive it as it was stored, or an error; return the last one.

        An object whose random key or unique value the store has already is made again.
        """
        filled = {name: value.pk if isinstance(value, KvModel) else value for name, value in values.items()}
        for field, reference in schema_of(cls.__model__).references.items():
            if reference.optional or field in values or field in vars(cls):
                continue
            target = cls.__targets__.get(field) or cls._factory_of(_target_of(reference, models))
            stored = yield from target._inserts(models, {})
            (filled[field],) = schema_of(type(stored)).primary_key_of(stored)
        obj, tries = cls.build(**filled), 0
        while True:
            try:
                return (yield obj)
            except _TAKEN as error:
                again, tries = cls.build(**filled), tries + 1
                full = isinstance(error, ExclusionViolationError) and tries >= _TRIES
                if full or not _differs(obj, again, error):
                    raise
                obj = again

    @classmethod
    def _factory_of(cls, model: type[KvModel]) -> type[KvFactory[Any]]:
        """Return the factory of a target; always the same, so that it repeats no keys."""
        if model not in cls._factories:
            cls._factories[model] = KvFactory.of(model)
        return cls._factories[model]


def _forget(factory: type[Any]) -> None:
    """Remove a base factory from those that polyfactory uses for all nested models of the process."""
    registered: list[Any] = cast("Any", BaseFactory)._base_factories
    registered[:] = [one for one in registered if one is not factory]


_forget(_ValueFactory)
_forget(KvFactory)


def _target_of(reference: Reference, models: tuple[type[KvModel], ...]) -> type[KvModel]:
    """Return the model of a target; the database has found a class for each name."""
    target: type[KvModel] | str = reference.target
    return next(model for model in models if model.__name__ == target) if isinstance(target, str) else target


def _differs(first: KvModel, second: KvModel, error: Exception) -> bool:
    """Return whether the value that the store has already is another one in the second object."""
    schema = schema_of(type(first))
    if isinstance(error, (UniqueViolationError, ExclusionViolationError)):
        fields = [column.field.partition(".")[0] for column in schema.indexes[error.index].entry_columns]
        return any(getattr(first, field, None) != getattr(second, field, None) for field in fields)
    return schema.primary_key_of(first) != schema.primary_key_of(second)


def _address(random: Random, field: str, least: int, most: int) -> str:
    """Return a random address within two lengths."""
    size = max(least, min(most, _USUAL_ADDRESS))
    domain = "example.org" if size >= _USUAL_ADDRESS else "x.org"
    name = size - len(domain) - 1
    if name > _LONGEST_NAME:
        domain, name = "x" * (name - _LONGEST_NAME) + domain, _LONGEST_NAME
    if name < 1 or size > min(most, _LONGEST_ADDRESS):
        raise InvalidArgumentError(
            "the factory knows no address of this length",
            argument=field,
            value=f"{least} to {most}",
            hint="Give the value in the call, or a function as a class attribute of the factory.",
        )
    return "".join(random.choices(ascii_lowercase, k=name)) + "@" + domain


def _unique_fields(model: type[KvModel]) -> frozenset[str]:
    schema = schema_of(model)
    columns = [*schema.primary_key] if len(schema.primary_key) == 1 else []
    columns += [index.columns[0] for index in schema.indexes.values() if index.unique and len(index.columns) == 1]
    return frozenset(column.field for column in columns)
