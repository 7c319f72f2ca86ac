"""Of which class an object or a stored record of a shared collection is, and the errors when it is of none.

Rules of this module: pure. A record whose class only another program knows is never written over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvmodels.errors import DecodeError, InvalidArgumentError, InvalidValueError
from kvmodels.schema.definition import Document, ModelSchema

__all__ = ["foreign_object", "made_of", "require_known_class", "unknown_class"]


def made_of(schema: ModelSchema, fields: Mapping[str, Any]) -> Any:
    """A new object of the model, or of the class of it that the discriminator among the fields says.

    Raises:
        InvalidArgumentError: it is needed, and is not there or says no class.
        pydantic.ValidationError: the values do not make a valid object.
    """
    variants = schema.variants
    if variants is None:
        return schema.model(**fields)
    if len(variants.by_class) == 1:
        return next(iter(variants.by_class))(**fields)
    tag = fields.get(variants.discriminator, schema.model)
    tag = getattr(tag, "value", tag)
    if tag is schema.model and schema.model in variants.by_class:
        return schema.model(**fields)
    made = variants.of_tag(tag)
    if made is None:
        raise InvalidArgumentError(
            "a new object is of no class of the collection",
            argument=variants.discriminator,
            value=None if tag is schema.model else tag,
            expected=tuple(variants.by_tag),
            hint="Give the field by which classes are told, or create the object with the repository of its class.",
        )
    return made.model(**fields)


def require_known_class(collection: ModelSchema, document: Document, key: tuple[Any, ...]) -> None:
    """Refuse to write over a record of a class that another program has, and this one does not know.

    A record that says no class at all is of none that anybody knows.

    Args:
        collection: the schema of the whole collection.
        document: as it is stored.
        key: its primary key.

    Raises:
        DecodeError: the class is not known.
    """
    variants = collection.variants
    if variants is None:
        return
    tag = variants.tag_of(document)
    if tag is not None and variants.of_tag(tag) is None:
        raise unknown_class(collection.name, variants.discriminator, tag, key)


def foreign_object(schema: ModelSchema, instance: object) -> InvalidValueError:
    """The error for what is not an object of a model: of another class, or of one that only others derive from."""
    classes = () if schema.variants is None else schema.variants.by_class
    if not any(issubclass(one, instance.__class__) for one in classes):
        return InvalidValueError(
            "this is not an object of the model",
            model=schema.name,
            type=type(instance).__name__,
            hint="Use the repository of the object's own class.",
        )
    assert schema.variants is not None  # it has classes
    return InvalidValueError(
        "an object of this class is of no kind, so it cannot be stored",
        model=schema.name,
        type=type(instance).__name__,
        field=schema.variants.discriminator,
        hint=f"Make an object of a class that derives from it: {', '.join(one.__name__ for one in classes)}.",
    )


def unknown_class(model: str, discriminator: str, tag: Any, key: tuple[Any, ...]) -> DecodeError:
    """The error for a record of a class that only another program has.

    Args:
        model: name of the model that was asked for.
        discriminator: the field that tells classes apart.
        tag: what the record stores of it; None: nothing.
        key: its primary key.
    """
    shown = repr(tag) if type(tag) in (str, int, bool, bytes) else type(tag).__name__
    return DecodeError(
        "a stored record is of a class that this program does not know",
        key=key,
        model=model,
        field=discriminator,
        reason="missing" if tag is None else f"stored {shown}",
        hint="Import the class before the database is opened, or run the program that has it.",
    )
