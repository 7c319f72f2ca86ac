"""Objects to stored documents and back, for one model: validate, encode, prove idempotent; reconcile, decode, validate.

Rules of this module: pydantic's ValidationError is raised unchanged by writes, and as a DecodeError by reads. The
caller's object changes only after the write has succeeded. After decoding, the document belongs to the object. For a
model of plain fields, no Python code runs per field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast

from pydantic import BaseModel, ValidationError

from kvmodels._support import switches
from kvmodels._support.naming import key_argument
from kvmodels.errors import (
    DecodeError,
    DecryptionError,
    InvalidArgumentError,
    InvalidValueError,
    KvModelsError,
    NonIdempotentValidatorError,
)
from kvmodels.schema.compile.columns import computed_values
from kvmodels.schema.declare.markers import Indexed, Unique
from kvmodels.schema.definition.definition import ColumnSource, Document, FastDecoding, ModelSchema
from kvmodels.schema.definition.forms import (
    Form,
    Function,
    extra_path,
    must_be_stored,
    refused_time_path,
    require_no_fields,
)
from kvmodels.schema.definition.upgrades import Upgrades, version_of
from kvmodels.schema.definition.values import COMPUTED, RESERVED_FIELD, SEALED, VERSION_NOTE, same_stored, unchanged
from kvmodels.schema.definition.variants import with_keys
from kvmodels.schema.filters.changes import evaluated, keeps_extra, unknown_field
from kvmodels.schema.instances import all_are_new, unknown_of

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor
_EXTRA: Final = attrgetter("__pydantic_extra__")
_REFUSALS: Final[tuple[type[Exception], ...]] = (ValidationError, InvalidValueError, RecursionError)
"""The errors that an unstorable object can cause; any other error is a defect."""


class PreparedObject(NamedTuple):
    """An object prepared for a write.

    Attributes:
        values: the validated values by field name.
        extra: the validated extra fields of a model with ``extra="allow"``, otherwise None.
        document: the document to store.
        unknown: stored fields that the class does not declare, from the object's state.
    """

    values: dict[str, Any]
    extra: dict[str, Any] | None
    document: Document
    primary_key: tuple[Any, ...]
    unknown: Mapping[str, Any]


class PreparedBatch(NamedTuple):
    """New objects prepared for one write; one ``PreparedObject`` for each would cost more.

    Attributes:
        values: the validated values of each object by field name.
        documents: the documents to store; if values are stored unchanged, the very same dicts.
        keeps_identity: whether ``accept`` must be called for each object, because containers keep their identity.
    """

    values: list[dict[str, Any]]
    documents: list[Document]
    keeps_identity: bool


class RecordCodec:
    """Encodes and decodes the objects of one model."""

    def __init__(
        self,
        model: type[BaseModel],
        forms: Mapping[str, Form],
        *,
        primary_key: tuple[str, ...],
        computed: tuple[ColumnSource, ...],
        schema_version: int,
        proves: bool,
        runs_user_code: bool,
        upgrades: Upgrades | None = None,
    ) -> None:
        self._model = model
        self._name = model.__name__
        self._validate: Callable[..., Any] = model.__pydantic_validator__.validate_python
        self._names = dict.fromkeys(forms).keys()
        self._count = len(forms)
        self._encoders = _named(forms, "encode")
        self._decoders = _named(forms, "decode")
        self._revalidators = _named(forms, "revalidate")
        self._mutable = tuple(name for name, form in forms.items() if form.mutable)
        self._required = tuple(name for name, info in model.model_fields.items() if must_be_stored(info))
        self._key_values = _taking(primary_key)
        self._computed = computed_values(model.__name__, computed) if computed else None
        self._schema_version = schema_version
        self._proves = proves
        self._upgrades = upgrades
        self._keeps_extra = model.model_config.get("extra") == "allow"
        self._runs_user_code = runs_user_code
        self._refusals = (Exception,) if runs_user_code else _REFUSALS
        self._is_bare = not self._revalidators and not proves
        self._is_stored_as_is = not self._encoders and not self._keeps_extra and schema_version == 1
        self._order = [*forms]
        self._replaceable = self._replaceable_fields()

    @property
    def fast_decoding(self) -> FastDecoding:
        """Return the steps of ``decode`` for a document that stores exactly the declared fields."""
        marked = self._schema_version > 1 or self._computed is not None
        return FastDecoding(self._names, self._decoders, self._validate, self._schema_version, marked)

    def primary_key_of(self, instance: Any) -> tuple[Any, ...]:
        """Return the current values of the primary key of an object."""
        return self._key_values(instance.__dict__)

    def prepare(self, instance: Any) -> PreparedObject:
        """Validate the current values of an object and encode them; the object itself is unchanged."""
        if instance.__class__ is not self._model:
            raise InvalidValueError(
                "this is not an object of the model",
                model=self._name,
                type=type(instance).__name__,
                hint=f"Give an object, {self._name}(...). An object of another class belongs to another repository.",
            )
        present = instance.__dict__
        is_bare = self._is_bare and switches.fast_kinds
        try:
            # Comparing lists of names costs a third of comparing sets of them.
            is_complete = [*present] == self._order or present.keys() == self._names
            if not is_bare or not is_complete or instance.__pydantic_extra__:
                present = self._present(instance)
            validated = self._validate(present, by_alias=False, by_name=True)
            values = validated.__dict__
            plain = self._is_stored_as_is and switches.fast_kinds and len(values) == self._count
            document = values.copy() if plain else self._document(validated)
        except RecursionError:
            raise InvalidValueError(
                "an object contains itself or is nested too deeply",
                model=self._name,
                hint="Store a reference, such as the primary key, instead of the object.",
            ) from None
        if self._proves:
            self._prove(document)
        if self._computed is not None:
            # From the validated values, because readers of the record see these.
            document.setdefault(RESERVED_FIELD, {})[COMPUTED] = self._computed(values)
        unknown = unknown_of(instance)
        if unknown:
            carried = {name: value for name, value in unknown.items() if name not in document}
            if RESERVED_FIELD in unknown:
                carried[RESERVED_FIELD] = {**unknown[RESERVED_FIELD], **document.get(RESERVED_FIELD, {})}
            document.update(carried)
        primary_key = self._key_values(values)
        return _new(PreparedObject, (values, validated.__pydantic_extra__, document, primary_key, unknown))

    def _replaceable_fields(self) -> Mapping[str, frozenset[type]]:
        """Return the fields for which stored values of these types are always valid, independent of other fields.

        Only for a model of plain values without validators, where validating such a value again does not change it.
        """
        is_plain = self._is_stored_as_is and not self._decoders and not self._mutable and self._computed is None
        if not is_plain or not self._is_bare or self._runs_user_code or self._upgrades is not None:
            return {}
        if self._model.__private_attributes__ or not _BOUNDS.isdisjoint(self._model.model_config):
            return {}
        return {
            name: _EXACT[info.annotation]
            for name, info in self._model.model_fields.items()
            if info.annotation in _EXACT and _MARKERS.issuperset(map(type, info.metadata))
        }

    def revise(self, document: Document, changes: Mapping[str, Any]) -> tuple[Any, PreparedObject] | None:
        """Return the object of a stored document with new values, validated once, and prepared for a write.

        Returns None if the document must be decoded before the change: a field, a new value or a stored value is not
        plain, or a stored value is invalid. ``changes`` contains no field that the library sets.
        """
        replaceable = self._replaceable
        if [*document] != self._order or not replaceable or not switches.fast_kinds:
            return None
        for name, value in changes.items():
            exact = replaceable.get(name)
            if exact is None or type(value) not in _PLAIN or type(document[name]) not in exact:
                return None
        try:
            instance = self._validate({**document, **changes}, by_alias=False, by_name=True)
        except ValidationError:
            return None
        values = instance.__dict__
        return instance, _new(PreparedObject, (values, None, values.copy(), self._key_values(values), {}))

    def prepare_many(self, instances: Sequence[Any]) -> PreparedBatch | None:
        """Prepare new objects by columns; None if ``prepare`` must be called for each of them.

        This applies to objects that were stored, to models with proven validators, computed columns or extra fields,
        and if an object is invalid: ``prepare`` then raises the error that names it.
        """
        if not (self._is_bare and switches.fast_kinds) or self._keeps_extra or self._computed is not None:
            return None
        if set(map(type, instances)) != {self._model} or not all_are_new(instances):
            return None
        validate = self._validate
        try:
            if any(map(_EXTRA, instances)):
                return None
            validated = [validate(one.__dict__, by_alias=False, by_name=True) for one in instances]
            values = [one.__dict__ for one in validated]
            documents = values if self._is_stored_as_is else [self._document(one) for one in validated]
        except self._refusals:
            return None  # ``prepare`` raises it again for the right object
        if set(map(len, values)) != {self._count}:
            return None
        return PreparedBatch(values, documents, keeps_identity=bool(self._mutable))

    def accept(self, instance: Any, prepared: PreparedObject) -> None:
        """Copy the validated values to the caller's object, after the write has succeeded.

        Containers and nested objects that validation left equal keep their identity, so that the caller's references to
        them stay valid.
        """
        present = instance.__dict__
        values = prepared.values
        if values is present:
            return
        if self._mutable:
            values = dict(values)
            for name in self._mutable:
                if name in present and unchanged(present[name], values[name]):
                    values[name] = present[name]
        # Not setattr, which would validate a second time, and fail on a frozen model.
        present.update(values)
        extras, prepared_extras = instance.__pydantic_extra__, prepared.extra
        if prepared_extras and extras is not None:
            for name, value in prepared_extras.items():
                if not unchanged(extras.get(name), value):
                    extras[name] = value

    def decode(self, document: Document, key: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
        """Return the validated object of a document, and the stored fields that the class does not declare.

        The caller must not use the document afterwards: its containers may become those of the object.
        """
        upgraded = document if self._upgrades is None else self._upgrades.apply(document, key)
        try:
            return self._decoded(upgraded, key)
        except DecodeError as error:
            if upgraded is document:
                raise
            raise DecodeError(
                "the result of the upgrades of a stored record is not a valid object of its model",
                key=key,
                model=self._name,
                field=error.field,
                reason=f"upgrade to {version_of(upgraded)}: {error.reason}",
                hint="Correct the upgrade functions, or the record with kv.unsafe().",
            ) from error

    def _decoded(self, document: Document, key: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
        unknown: dict[str, Any] = {}
        if document.keys() != self._names:
            document, unknown = self._reconciled(document, key)
        elif self._decoders or self._proves:
            document = dict(document)
        name: str | None = None
        try:
            for name, decode in self._decoders:
                if name in document:
                    document[name] = decode(document[name])
            name = None
            return self._validate(document, by_alias=False, by_name=True), unknown
        except Exception as error:
            # Functions of the user may raise anything, and so may foreign data.
            raise self._unreadable(key, name, error) from error

    def _present(self, instance: Any) -> dict[str, Any]:
        """Return the values and extra fields of an object as input that pydantic validates in depth."""
        present = {name: instance.__dict__[name] for name in self._names if name in instance.__dict__}
        name = ""
        try:
            for name, revalidate in self._revalidators:
                if name in present:
                    present[name] = revalidate(present[name])
        except InvalidValueError as error:
            raise self._of_field(error, name, present[name]) from error
        extra = instance.__pydantic_extra__
        if extra:
            require_no_fields(self._name, extra, self._names, path="$")
            present.update(extra)
        return present

    def _of_field(self, error: InvalidValueError, name: str, value: Any) -> InvalidValueError:
        """Return the error of a value inside a field, with the field and, if possible, the path."""
        path = error.path
        if path is None:
            inner = extra_path(value) or refused_time_path(value)
            path = None if inner is None else f"$.{name}{inner}"
        return InvalidValueError(
            error.message, model=self._name, field=name, path=path, type=error.type, hint=error.hint
        )

    def _document(self, validated: Any) -> Document:
        values = validated.__dict__
        document = values.copy() if len(values) == self._count else {name: values[name] for name in self._names}
        name = ""
        try:
            for name, encode in self._encoders:
                document[name] = encode(document[name])
        except InvalidValueError as error:
            raise self._of_field(error, name, values[name]) from error
        except InvalidArgumentError:
            raise  # of a blob that is not stored
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            raise InvalidValueError(
                "a value cannot be stored in the form of its field",
                model=self._name,
                field=name,
                type=type(document[name]).__name__,
                hint="A validator returned another type than the annotation says, or the type's own function failed.",
            ) from error
        if self._keeps_extra and validated.__pydantic_extra__:
            self._add_extra(document, validated.__pydantic_extra__)
        if self._schema_version > 1:
            document[RESERVED_FIELD] = {"v": self._schema_version}
        return document

    def _add_extra(self, document: Document, extra: Mapping[str, Any]) -> None:
        require_no_fields(self._name, extra, self._names, path="$")
        for name in extra:
            if name.startswith(RESERVED_FIELD):
                raise InvalidValueError(
                    "the name of an extra field is reserved",
                    model=self._name,
                    field=name,
                    hint="Names that begin with $kv belong to the library.",
                )
        document.update(extra)

    def _prove(self, document: Document) -> None:
        try:
            # A copy, because a validator that changes a list in place would change the document too.
            again = self._document(self.decode(deepcopy(document), ())[0])
        except (DecodeError, InvalidValueError) as error:
            raise NonIdempotentValidatorError(
                "a validator does not accept its own result", model=self._name, field=error.field
            ) from error
        for name in (*document, *again):
            if name not in again or name not in document or not same_stored(document[name], again[name]):
                raise NonIdempotentValidatorError("a validator changes its own result", model=self._name, field=name)

    def _reconciled(self, document: Document, key: tuple[Any, ...]) -> tuple[Document, dict[str, Any]]:
        reserved = document.get(RESERVED_FIELD)
        unknown: dict[str, Any] = {}
        if reserved is not None:
            document = document.copy()
            del document[RESERVED_FIELD]
            unknown = self._reserved(reserved, key)
            if document.keys() == self._names:
                return document, unknown
        for name in self._required:
            if name not in document:
                raise DecodeError(
                    "a stored record lacks a field that has no plain default",
                    key=key,
                    model=self._name,
                    field=name,
                    reason="missing",
                    hint="The record was written before the field existed: give the field a plain default (a "
                    "default_factory only of list, dict, set, frozenset or tuple: another could give another value in "
                    "every read), write an upgrade that fills it, or remove the record: "
                    f"repository.remove({key_argument(key)}).",
                )
        if self._keeps_extra or document.keys() <= self._names:
            return (dict(document) if reserved is None else document), unknown
        unknown.update((name, value) for name, value in document.items() if name not in self._names)
        return {name: value for name, value in document.items() if name in self._names}, unknown

    def _reserved(self, reserved: Any, key: tuple[Any, ...]) -> dict[str, Any]:
        if reserved.__class__ is dict and len(reserved) == 1 and COMPUTED in reserved:
            return {}  # by far the most frequent case, without a loop
        reserved = cast("dict[str, Any]", reserved) if type(reserved) is dict else {"v": None}
        version = reserved.get("v", 1)
        if type(version) is not int or not 1 <= version <= self._schema_version:
            raise DecodeError(
                "a stored record is of another schema version",
                key=key,
                model=self._name,
                field=RESERVED_FIELD,
                reason=f"stored {version!r}, declared {self._schema_version}",
                hint="A newer version of the program wrote it: update this one.",
            )
        sealed = reserved.get(SEALED, ())
        if not self._names.isdisjoint(sealed):
            raise DecryptionError(
                "a field of a stored record is encrypted, and the database was opened without keys",
                key=key,
                model=self._name,
                field=next(name for name in sealed if name in self._names),
            )
        # Every write computes the values of computed columns again, with the functions of the writing class.
        rest = {name: value for name, value in reserved.items() if name not in ("v", COMPUTED, VERSION_NOTE)}
        return {RESERVED_FIELD: rest} if rest else {}

    def _unreadable(self, key: tuple[Any, ...], field: str | None, error: Exception) -> DecodeError:
        reason = error.message if isinstance(error, KvModelsError) else type(error).__name__
        if isinstance(error, ValidationError):
            problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
            reason = problem["type"]
            if field is None and problem["loc"]:
                field = str(problem["loc"][0])
        return DecodeError(
            "a stored record is not a valid object of its model",
            key=key,
            model=self._name,
            field=field,
            reason=reason,
            hint="Let the model accept what is stored (kv.get shows it), or remove the record: "
            f"repository.remove({key_argument(key)}).",
        )


def apply_changes(schema: ModelSchema, instance: Any, changes: Mapping[str, Any]) -> None:
    """Set new values of an object by field name; ``prepare`` validates them with all others.

    Not setattr: a model may be frozen, and ``validate_assignment`` would validate intermediate states.
    """
    changes = with_keys(schema, changes)
    extra = instance.__pydantic_extra__
    for name in changes:
        if name not in schema.fields and (extra is None or not keeps_extra(schema, name)):
            raise unknown_field(schema, name, "a change names a field that the model does not have")
    for field in schema.time_fields:
        if field.name in changes:
            raise InvalidArgumentError(
                "a change names a field that the library sets",
                argument=field.name,
                value=field.automatic,
                hint="Leave it out: every write sets it.",
            )
    for name, value in evaluated(schema, instance, changes).items():
        if name in schema.fields:
            instance.__dict__[name] = value
            instance.__pydantic_fields_set__.add(name)
        elif extra is not None:
            extra[name] = value


_PLAIN: Final[frozenset[type]] = frozenset({str, int, float, bool, bytes, type(None)})
_EXACT: Final[dict[Any, frozenset[type]]] = {
    annotation: frozenset(kinds)
    for kind in (str, int, float, bool)
    for annotation, kinds in ((kind, [kind]), (kind | None, [kind, type(None)]))
}
"""For the annotation of a field without bounds: types whose values are always valid and stay unchanged."""

_BOUNDS: Final = frozenset(
    {"allow_inf_nan", "str_max_length", "str_min_length", "str_strip_whitespace", "str_to_lower", "str_to_upper"}
)
"""Settings of a model that restrict or change the values of all its fields."""

_MARKERS: Final = frozenset({Indexed, Unique})
"""Metadata of a field that pydantic ignores."""


def _named(forms: Mapping[str, Form], function: str) -> tuple[tuple[str, Function], ...]:
    found = ((name, getattr(form, function)) for name, form in forms.items())
    return tuple((name, apply) for name, apply in found if apply is not None)


def _taking(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function that returns the values of some fields."""
    if len(names) == 1:
        (name,) = names
        return lambda values: (values[name],)
    return lambda values: tuple([values[name] for name in names])
