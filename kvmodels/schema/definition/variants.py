"""Construction of objects from named values, the class of an object in a shared collection, and objects as keys.

Pydantic ignores names that its constructor does not accept, so a misspelt field would silently keep its default. The
write methods refuse such a name. A class that keeps extra fields, or whose own code sees the input first, may accept
any name. An object that is given for a foreign key stands for its primary key.

Rules of this module: pure; pydantic's constructor is not changed. A record of a class that only another program knows
is never overwritten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from pydantic import AliasChoices, AliasPath, BaseModel, ValidationError
from pydantic.fields import FieldInfo

from kvmodels._support import suggest as spelling
from kvmodels.errors import DecodeError, InvalidArgumentError, InvalidValueError, UnknownFieldError
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.properties import hint_to_write

_CONSTRUCTOR: Final = "__kv_constructor__"
_BODY: Final = "__kv_body__"
_OPTIONS: Final = "__kv_options__"
_NO_ALIASES: Final[Mapping[str, str]] = {}


def constructor_of(model: type[BaseModel]) -> Constructor:
    """Return the constructor of a complete class, with the names that it accepts; created once per class."""
    known: Constructor | None = model.__dict__.get(_CONSTRUCTOR)
    if known is None:
        known = Constructor(model)
        type.__setattr__(model, _CONSTRUCTOR, known)
    return known


class Constructor:
    """The constructor of one complete class.

    Attributes:
        aliases: for each alias, its field.
        takes: the names that the constructor accepts: aliases, names of fields, and first names of alias paths.
        takes_any: whether it may accept other names too.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        config = model.model_config
        by_alias = config.get("validate_by_alias", True)
        by_name = config.get("validate_by_name") or config.get("populate_by_name") or False
        self._model = model
        self._fields: Mapping[str, FieldInfo] = model.model_fields
        self._names: dict[str, list[str]] = {}
        paths: set[str] = set()
        self.aliases: dict[str, str] = {}
        for field, info in self._fields.items():
            names, heads = _aliases(info)
            self.aliases.update((name, field) for name in names if name != field)
            self._names[field] = [*(names if by_alias else ())]
            paths.update(heads if by_alias else ())
            if by_name or info.validation_alias is None:
                self._names[field].append(field)
        self.takes = paths.union(*self._names.values())
        self.takes_any = config.get("extra") == "allow" or _has_own_code(model)
        self._field_of = {name: field for field, names in self._names.items() for name in names}
        # Without other names: an extra field has its own rules, and so has a class with its own code.
        self._has_choice = not self.takes_any and any(len(set(names)) > 1 for names in self._names.values())

    def require_names(self, names: Iterable[str]) -> None:
        """Raise UnknownFieldError for a name that the constructor would ignore."""
        for name in names:
            if name not in self.takes and not self.takes_any:
                raise self.unknown(name)

    def made(self, values: Mapping[str, Any]) -> Any:
        """Return a new object with values by the names that the constructor accepts."""
        if not values.keys() <= self.takes:
            self.require_names(values)
        if self._has_choice:
            self._refuse_second_name(values)
        return self._model(**values)

    def made_by_fields(self, values: Mapping[str, Any]) -> Any:
        """Return a new object with values by names of fields or of the constructor; raises like ``made``."""
        if values.keys() <= self.takes:
            return self.made(values)
        named = {self._taken_for(name): value for name, value in values.items()}
        if len(named) < len(values):
            field = next(name for name in values if self._taken_for(name) != name and self._taken_for(name) in values)
            raise self._given_twice(field, field, self._taken_for(field))
        unnamed = named.keys() & self._fields.keys() - self.takes
        if not unnamed:
            return self.made(named)
        self.require_names(named.keys() - unnamed)
        return self._model.model_validate(named, by_alias=True, by_name=True)

    def _taken_for(self, name: str) -> str:
        """Return the name that the constructor accepts for a field; the field itself if there is no single one."""
        return name if name in self.takes else next(iter(self._names.get(name, ())), name)

    def knows(self, name: str) -> bool:
        """Return whether ``made_by_fields`` may accept a name."""
        return name in self.takes or name in self._fields or self.takes_any

    def _refuse_second_name(self, values: Mapping[str, Any]) -> None:
        first: dict[str, str] = {}
        for name in values:
            given = first.setdefault(self._field_of.get(name, name), name)
            if given != name:
                raise self._given_twice(self._field_of[name], given, name)

    def _given_twice(self, field: str, first: str, second: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            "a field of a new object is given under two names",
            argument=second,
            expected=(first,),
            hint=f"Both are the field {field} of {self._model.__name__}. Give it once: one value would be lost.",
        )

    def unknown(self, name: str) -> UnknownFieldError:
        """Return the error for a name that the constructor would ignore, with the nearest known name."""
        known = [names[0] if names else field for field, names in self._names.items()]
        near = next(iter(self._names.get(name, ())), None) or spelling.closest(name, [*known, *self.takes])
        return UnknownFieldError(
            "a name for a new object is not a field of its model",
            model=self._model.__name__,
            field=name,
            suggestion=near,
            hint=hint_to_write(self._model, name) or f"The model takes: {', '.join(known)}.",
        )


def _aliases(info: FieldInfo) -> tuple[list[str], list[str]]:
    """Return the aliases of a field in input, and the first names of its alias paths."""
    given = info.validation_alias
    choices: Iterable[Any] = given.choices if isinstance(given, AliasChoices) else () if given is None else (given,)
    names: list[str] = []
    heads: list[str] = []
    for choice in choices:
        steps = choice.path if isinstance(choice, AliasPath) else [choice]
        (names if len(steps) == 1 else heads).append(str(steps[0]))
    return names, heads


def _has_own_code(model: type[BaseModel]) -> bool:
    """Return whether code of the class sees the input before pydantic, so that it may accept other names."""
    decorators = model.__pydantic_decorators__
    return (
        model.__pydantic_custom_init__
        or bool(decorators.root_validators)
        or any(one.info.mode in ("before", "wrap") for one in decorators.model_validators.values())
        or _schema_function(model) is not _schema_function(BaseModel)
    )


def _schema_function(model: type[BaseModel]) -> Any:
    return getattr(model.__get_pydantic_core_schema__, "__func__", None)


def key_given(schema: ModelSchema, field: str, value: Any) -> Any:
    """Return the primary key of an object that is passed for a foreign key; every other value unchanged."""
    if not isinstance(value, BaseModel):
        return value
    reference = schema.references[field]
    if collection_of(type(value)) != schema.indexes[reference.index_name].reference:
        raise InvalidValueError(
            "a foreign key is given an object of another model than its target",
            model=schema.name,
            field=field,
            type=type(value).__name__,
            hint=f"Give an object of {reference.target_name}, or its primary key.",
        )
    return getattr(value, "pk")  # noqa: B009 - every class of a target has it, which type checkers cannot see


def collection_of(model: type[Any]) -> str | None:
    """Return the collection that stores the objects of a class.

    A class may derive from the target of a foreign key and have a collection of its own, with other records.
    """
    options = getattr(model, _OPTIONS, None)
    return None if options is None else options.collection


def with_keys(
    schema: ModelSchema, values: Mapping[str, Any], aliases: Mapping[str, str] = _NO_ALIASES
) -> Mapping[str, Any]:
    """Return values by name with the keys of objects that are given for foreign keys; raises as ``key_given``."""
    if not schema.references:
        return values
    fields = {name: aliases.get(name, name) for name, value in values.items() if isinstance(value, BaseModel)}
    keys = {
        name: key_given(schema, field, values[name]) for name, field in fields.items() if field in schema.references
    }
    return {**values, **keys} if keys else values


def new_object(schema: ModelSchema, values: Mapping[str, Any], *, by_fields: bool = False) -> Any:
    """Return a new object of the model, or of its class that the discriminator in the values selects.

    With ``by_fields``, names of fields are accepted even if the constructor accepts only their aliases. Raises like
    ``Constructor.made``, and InvalidArgumentError if the discriminator is required and missing or unknown.
    """
    constructor = constructor_of(_class_of(schema, values))
    if schema.references:
        values = with_keys(schema, values, constructor.aliases)
    return constructor.made_by_fields(values) if by_fields else constructor.made(values)


def _class_of(schema: ModelSchema, values: Mapping[str, Any]) -> type[Any]:
    variants = schema.variants
    if variants is None:
        return schema.model
    if len(variants.by_class) == 1:
        return next(iter(variants.by_class))
    model: type[Any] = schema.model
    tag: object = values.get(variants.discriminator, model)
    tag = getattr(tag, "value", tag)
    if tag is model and model in variants.by_class:
        return model
    made = variants.of_tag(tag)
    if made is None:
        raise InvalidArgumentError(
            "a new object has no class of the collection",
            argument=variants.discriminator,
            value=None if tag is model else tag,
            expected=tuple(variants.by_tag),
            hint="Give the discriminator field, or create the object with the repository of its class.",
        )
    return made.model


def require_known_names(schema: ModelSchema, names: Iterable[str]) -> None:
    """Raise UnknownFieldError for a name that is unknown to all classes of the collection."""
    constructors = _constructors(schema)
    for name in names:
        if not any(one.knows(name) for one in constructors):
            raise constructors[0].unknown(name)


def _constructors(schema: ModelSchema) -> list[Constructor]:
    """Return the constructors of all classes of a collection."""
    return [constructor_of(one) for one in ((schema.model,) if schema.variants is None else schema.variants.by_class)]


def mark_body_error(schema: ModelSchema, error: ValidationError, fields: Collection[str]) -> None:
    """Mark an error for ``is_body_error`` if a client caused it by the values of ``fields`` in its body.

    An error of the whole object counts, because the object has these values. An error of any other field does not.
    """
    if not fields:
        return
    aliases = {alias: field for one in _constructors(schema) for alias, field in one.aliases.items()}
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    places = [str(problem["loc"][0]) for problem in problems if problem["loc"]]
    if all(aliases.get(place, place) in fields for place in places):
        setattr(error, _BODY, True)  # pydantic permits no derived class


def is_body_error(error: ValidationError) -> bool:
    """Return whether a write method raised an error that the values in its ``body`` caused."""
    return hasattr(error, _BODY)


def require_known_class(collection: ModelSchema, document: Document, key: tuple[Any, ...]) -> None:
    """Raise DecodeError for a record of a class that this program does not know, so that it is not overwritten."""
    variants = collection.variants
    if variants is None:
        return
    tag = variants.tag_of(document)
    if tag is not None and variants.of_tag(tag) is None:
        raise unknown_class(collection.name, variants.discriminator, tag, key)


def foreign_object(schema: ModelSchema, instance: object) -> InvalidValueError:
    """Return the error for an object of another class, or of a class without records."""
    variants = schema.variants
    if variants is None or not any(issubclass(one, instance.__class__) for one in variants.by_class):
        return InvalidValueError(
            "this is not an object of the model",
            model=schema.name,
            type=type(instance).__name__,
            hint=f"Give an object, {schema.name}(...). An object of another class belongs to another repository.",
        )
    return InvalidValueError(
        "an object of this class has no discriminator value, so it cannot be stored",
        model=schema.name,
        type=type(instance).__name__,
        field=variants.discriminator,
        hint=f"Make an object of a class that derives from it: {', '.join(one.__name__ for one in variants.by_class)}.",
    )


def unknown_class(model: str, discriminator: str, tag: Any, key: tuple[Any, ...]) -> DecodeError:
    """Return the error for a record of a class that this program does not know."""
    shown = repr(tag) if type(tag) in (str, int, bool, bytes) else type(tag).__name__
    return DecodeError(
        "a stored record is of a class that this program does not know",
        key=key,
        model=model,
        field=discriminator,
        reason="missing" if tag is None else f"stored {shown}",
        hint="Import the class before the database is opened, or run the program that has it.",
    )
