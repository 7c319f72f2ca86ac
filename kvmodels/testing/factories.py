"""Factories of test records, based on polyfactory.

Rules of this module: a factory builds an object from the types of its fields; what a store demands besides types is
added here: distinct values in unique fields, and existing targets of foreign keys.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from polyfactory.factories.base import BuildContext
from polyfactory.factories.pydantic_factory import ModelFactory
from polyfactory.field_meta import FieldMeta

from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._sync.database import Database
from kvmodels.core.ulid import ULID
from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.definition.definition import Reference
from kvmodels.schema.definition.variants import constructor_of

M = TypeVar("M", bound=KvModel)
N = TypeVar("N", bound=KvModel)

_MOST_DRAWS: Final = 1_000

_Inserts = Generator[KvModel, KvModel, KvModel]


class KvFactory(ModelFactory[M], Generic[M]):
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

    def __init_subclass__(cls, *args: Any, **kwargs: Any) -> None:
        super().__init_subclass__(*args, **kwargs)
        cls._given = set()

    @staticmethod
    def of(model: type[N]) -> type[KvFactory[N]]:
        """Return a new factory of a model, without a class statement."""
        return cast("type[KvFactory[N]]", KvFactory.create_factory(model))

    @classmethod
    def get_provider_map(cls) -> dict[Any, Any]:
        """Return the functions that make values by type: a datetime has a time zone, as indexes demand."""
        return {
            **super().get_provider_map(),
            ULID: ULID,
            datetime: lambda: cls.__faker__.date_time_this_decade(tzinfo=UTC),
        }

    @classmethod
    def process_kwargs(cls, **kwargs: Any) -> dict[str, Any]:
        """Return the values of all fields.

        Raises:
            UnknownFieldError: a name is not a field.
        """
        constructor_of(cls.__model__).require_names(name for name in kwargs if not name.startswith("_"))
        return super().process_kwargs(**kwargs)

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
                obj = inserts.send(db[type(obj)].insert(obj))
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
                obj = inserts.send(await db[type(obj)].insert(obj))
        except StopIteration as end:
            return cast("M", end.value)

    @classmethod
    async def acreate_batch(cls, db: AsyncDatabase, size: int, **values: Any) -> list[M]:
        """Store ``size`` objects as ``acreate`` does."""
        return [await cls.acreate(db, **values) for _ in range(size)]

    @classmethod
    def _inserts(cls, models: tuple[type[KvModel], ...], values: Mapping[str, Any]) -> _Inserts:
        """Yield each object to insert, and receive it as it was stored; return the last one."""
        filled = {name: value.pk if isinstance(value, KvModel) else value for name, value in values.items()}
        for field, reference in schema_of(cls.__model__).references.items():
            if reference.optional or field in values or field in vars(cls):
                continue
            target = cls.__targets__.get(field) or _factory_of(reference, models)
            stored = yield from target._inserts(models, {})
            (filled[field],) = schema_of(type(stored)).primary_key_of(stored)
        return (yield cls.build(**filled))


def _factory_of(reference: Reference, models: tuple[type[KvModel], ...]) -> type[KvFactory[Any]]:
    """Return a factory of a target; the database has found a class for each name."""
    target: type[KvModel] | str = reference.target
    if isinstance(target, str):
        target = next(model for model in models if model.__name__ == target)
    return KvFactory.of(target)


def _unique_fields(model: type[KvModel]) -> frozenset[str]:
    schema = schema_of(model)
    columns = [*schema.primary_key] if len(schema.primary_key) == 1 else []
    columns += [index.columns[0] for index in schema.indexes.values() if index.unique and len(index.columns) == 1]
    return frozenset(column.field for column in columns)
