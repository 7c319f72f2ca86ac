"""Types whose validation looks at the clock, the disk or installed modules are refused when the class is created."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypeVar

import pydantic
import pytest
from pydantic import BaseModel, Field, RootModel
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType, TypedDict

from kvmodels import Database, Indexed, KvModel, ModelDefinitionError, PrimaryKey, Stored
from kvmodels.schema.compile import schema as compiling

T = TypeVar("T")

TYPES: dict[str, tuple[Any, str]] = {
    "FutureDatetime": (pydantic.FutureDatetime, "clock"),
    "PastDatetime": (pydantic.PastDatetime, "clock"),
    "FutureDate": (pydantic.FutureDate, "clock"),
    "PastDate": (pydantic.PastDate, "clock"),
    "FilePath": (pydantic.FilePath, "disk"),
    "DirectoryPath": (pydantic.DirectoryPath, "disk"),
    "NewPath": (pydantic.NewPath, "disk"),
    "SocketPath": (pydantic.SocketPath, "disk"),
    "ImportString": (pydantic.ImportString, "installed modules"),
}


def refused(annotation: Any) -> ModelDefinitionError:
    with pytest.raises(ModelDefinitionError, match="could become unreadable") as caught:

        class Meeting(KvModel):
            id: PrimaryKey[int]
            at: annotation

    assert (caught.value.model, caught.value.field) == ("Meeting", "at")
    return caught.value


@pytest.mark.parametrize(("annotation", "looks_at"), TYPES.values(), ids=TYPES)
def test_a_type_that_looks_outside_of_the_record_is_refused(annotation: Any, looks_at: str):
    error = refused(annotation)
    assert error.option in TYPES
    assert TYPES[error.option or ""][0] is annotation
    assert f"{error.option} looks at the {looks_at}" in (error.hint or "")


@pytest.mark.parametrize(
    ("annotation", "option"),
    [
        (pydantic.Json, "Json"),
        (pydantic.Json[int], "Json"),
        (list[pydantic.Json[list[int]]] | None, "Json"),
        (pydantic.Base64Str, "Base64Str"),
        (pydantic.Base64Bytes, "Base64Bytes"),
        (dict[str, pydantic.Base64UrlStr], "Base64UrlStr"),
        (pydantic.Base64UrlBytes, "Base64UrlBytes"),
        (Annotated[str, pydantic.EncodedStr(encoder=pydantic.Base64Encoder)], "Base64Str"),
    ],
)
def test_a_type_that_decodes_its_input_is_refused(annotation: Any, option: str):
    with pytest.raises(ModelDefinitionError, match="does not accept its own values") as caught:

        class Upload(KvModel):
            id: PrimaryKey[int]
            body: annotation

    assert (caught.value.model, caught.value.field, caught.value.option) == ("Upload", "body", option)


class Nested(BaseModel):
    at: pydantic.FutureDate


class Again(BaseModel):
    default: Nested | None = None
    type: Again | None = None


class Box(BaseModel, Generic[T]):
    inside: list[T]


@dataclass
class Standard:
    at: pydantic.FutureDate


@pydantic_dataclass
class Checked:
    at: pydantic.FutureDate


class Row(TypedDict):
    at: pydantic.FutureDate


class Pair(NamedTuple):
    name: str
    at: pydantic.FutureDate


Day = NewType("Day", pydantic.FutureDate)
Alias = TypeAliasType("Alias", pydantic.FutureDate)
ListOf = TypeAliasType("ListOf", list[T], type_params=(T,))

SPELLINGS: dict[str, Any] = {
    "optional": pydantic.FutureDate | None,
    "union": int | pydantic.FutureDate,
    "annotated": Annotated[pydantic.FutureDate, Field(description="x")],
    "as metadata": Annotated[date, pydantic.FutureDate],
    "list": list[pydantic.FutureDate],
    "set": set[pydantic.FutureDate],
    "tuple": tuple[int, pydantic.FutureDate],
    "value of a dict": dict[str, pydantic.FutureDate],
    "key of a dict": dict[pydantic.FutureDate, int],
    "new type": Day,
    "alias": Alias,
    "generic alias": ListOf[pydantic.FutureDate],
    "nested model": Nested,
    "model in a model": dict[str, list[Again]],
    "generic model": Box[pydantic.FutureDate],
    "root model": RootModel[pydantic.FutureDate],
    "dataclass": Standard,
    "pydantic dataclass": Checked,
    "typed dict": Row,
    "named tuple": Pair,
    "indexed": Indexed[pydantic.FutureDate],
    "stored by functions": Annotated[pydantic.FutureDate, Stored(str, date.fromisoformat)],
}


@pytest.mark.parametrize("annotation", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_of_such_a_type_is_refused(annotation: Any):
    assert refused(annotation).option == "FutureDate"


def declared_with_extras() -> None:
    class Meeting(KvModel, extra="allow"):
        __pydantic_extra__: dict[str, pydantic.FutureDate]
        id: PrimaryKey[int]


def declared_in_a_parent() -> None:
    class Timed(KvModel, abstract=True):
        at: pydantic.FutureDate

    class Meeting(Timed):
        id: PrimaryKey[int]


def declared_in_a_class_of_a_collection() -> None:
    class Event(KvModel, discriminator="kind"):
        id: PrimaryKey[int]

    class Meeting(Event):
        kind: Any = "meeting"
        at: pydantic.FutureDate


def declared_with_a_validator_of_the_model() -> None:
    class Meeting(KvModel):
        id: PrimaryKey[int]
        at: pydantic.FutureDate

        @pydantic.model_validator(mode="wrap")
        @classmethod
        def check(cls, value: Any, handler: Any) -> Any:
            return handler(value)


@pytest.mark.parametrize(
    "declare",
    [
        declared_with_extras,
        declared_in_a_parent,
        declared_in_a_class_of_a_collection,
        declared_with_a_validator_of_the_model,
    ],
)
def test_such_a_type_is_found_wherever_the_class_has_it(declare: Callable[[], None]):
    with pytest.raises(ModelDefinitionError, match="could become unreadable") as caught:
        declare()
    assert (caught.value.model, caught.value.option) == ("Meeting", "FutureDate")


def test_plain_types_and_names_that_look_alike_are_taken():
    class Plain(KvModel):
        id: PrimaryKey[int]
        now_op: str = "past"
        import_string: str = "math.cos"
        default: dict[str, Any] = {"now_op": "past", "type": "date"}
        at: datetime
        path: Path

    records = Database("memory://", models=[Plain])[Plain]
    made = records.create(id=1, at=datetime.now(UTC) + timedelta(days=1), path=Path("/nowhere"))
    assert records.get(1) == made


def test_records_of_a_refused_type_are_read_with_the_plain_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    file = tmp_path / "a.txt"
    file.touch()
    with monkeypatch.context() as earlier:
        earlier.setattr(compiling, "require_lasting_types", lambda model: None)

        class OldMeeting(KvModel, collection="meetings"):
            id: PrimaryKey[int]
            on: Indexed[Annotated[date, pydantic.PastDate]]
            notes: pydantic.FilePath

    class Meeting(KvModel, collection="meetings"):
        id: PrimaryKey[int]
        on: Indexed[date]
        notes: Path

    with Database("memory://refused-types", models=[OldMeeting]) as old:
        old[OldMeeting].create(id=1, on=date(2020, 1, 2), notes=file)
        file.unlink()
        with Database("memory://refused-types", models=[Meeting]) as new:
            assert not new.plan().steps
            assert new[Meeting].filter(on=date(2020, 1, 2)).first() == Meeting(id=1, on=date(2020, 1, 2), notes=file)
