"""No field has the name of an option of a verb that takes fields as keywords; every other name works in every verb."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest

from kvmodels import AsyncDatabase, Database, F, Field, Indexed, KvModel, ModelDefinitionError, PrimaryKey, upgrade
from kvmodels.schema.declare import on_write
from kvmodels.schema.declare.on_write import VERB_KEYWORDS
from tests.facades import facade_classes, public_methods

FIELDS = {"fields", "changes", "lookups"}
"""Keywords of methods that are names of fields."""

OTHERS = {"named", "_", "__"}
"""Keywords that are no names of fields: names of results, and arguments of methods that only raise."""


def verbs() -> Iterator[tuple[str, str, list[inspect.Parameter]]]:
    """Every method that takes any keyword, with the name of these keywords and its other parameters."""
    for cls in facade_classes().values():
        for name, method in public_methods(cls).items():
            parameters = list(inspect.signature(method).parameters.values())
            for last in parameters:
                if last.kind is inspect.Parameter.VAR_KEYWORD:
                    yield f"{cls.__name__}.{name}", last.name, [one for one in parameters if one is not last]


def test_every_option_of_a_verb_that_takes_fields_is_reserved_and_no_other_name():
    found = list(verbs())
    assert {name for _, name, _ in found} == FIELDS | OTHERS
    taken = {
        parameter.name
        for _, name, parameters in found
        if name in FIELDS
        for parameter in parameters
        if parameter.kind in {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    }
    assert taken == VERB_KEYWORDS.keys()


def test_self_is_positional_only_where_fields_are_keywords():
    for verb, name, parameters in verbs():
        assert name not in FIELDS or parameters[0].kind is inspect.Parameter.POSITIONAL_ONLY, verb


@pytest.mark.parametrize("name", VERB_KEYWORDS)
def test_a_field_with_the_name_of_an_option_is_refused_when_the_class_is_created(name: str):
    def declared() -> None:
        type("Job", (KvModel,), {"__module__": __name__, "__annotations__": {"id": PrimaryKey[int], name: int}})

    mixin = pydantic.create_model("Mixin", **{name: (int, 0)})  # type: ignore[call-overload]

    def inherited() -> None:
        type("Job", (mixin, KvModel), {"__module__": __name__, "__annotations__": {"id": PrimaryKey[int]}})

    def abstract() -> None:
        class Base(KvModel, abstract=True):
            __annotations__ = {name: int}

    for declare in (declared, inherited, abstract):
        with pytest.raises(ModelDefinitionError, match="is reserved") as caught:
            declare()
        assert caught.value.field == name
        assert "Rename the field" in (caught.value.hint or "")


class Odd(KvModel, collection="odd", extra="allow"):
    """Names that are parameters of methods, or nearly options."""

    id: PrimaryKey[int]
    self: Indexed[int] = Field(default=0)
    cls: int = 0
    key: int = 0
    body: int = 0
    obj: int = 0
    fields: int = 0
    changes: int = 0
    lookups: int = 0
    arguments: int = 0
    function: int = 0
    force: int = 0
    analyze: int = 0
    expire: int = 0


NAMES = [name for name in Odd.model_fields if name != "id"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_field_named_like_a_parameter_works_in_every_verb(name: str):
    db = Database("memory://", models=[Odd])
    odd: Any = db[Odd]
    assert getattr(odd.create(id=1, **{name: 1}), name) == 1
    assert getattr(odd.patch(1, **{name: 2}), name) == 2
    assert odd.all().update(**{name: F(name) + 1}).written == 1
    assert getattr(odd.get(1), name) == 3
    assert getattr(odd.update_or_create(id=1, defaults={name: 4})[0], name) == 4
    assert getattr(odd.get_or_create(id=2, **{name: 5})[0], name) == 5
    assert getattr(odd.update_or_create(id=2, **{name: 5}, defaults={"note": 1})[0], name) == 5
    assert odd.get(id=1, **{name: 4}).id == odd.get_or_none(id=1, **{name: 4}).id == 1
    assert [one.id for one in odd.filter(id__gte=1).exclude(**{name: 4})] == [2]
    with db.transaction() as tx:
        inside: Any = tx[Odd]
        assert getattr(inside.create(id=3, **{name: 6}), name) == 6
    async with AsyncDatabase("memory://", models=[Odd]) as other:
        there: Any = other[Odd]
        assert getattr(await there.create(id=1, **{name: 1}), name) == 1
        assert getattr(await there.patch(1, **{name: 2}), name) == 2
        assert (await there.all().update(**{name: F(name) + 1})).written == 1
        assert getattr(await there.get(id=1, **{name: 3}), name) == 3
        assert getattr((await there.update_or_create(id=1, defaults={name: 4}))[0], name) == 4
        assert getattr((await there.get_or_create(id=2, **{name: 5}))[0], name) == 5
        assert [one.id async for one in there.filter(id__gte=1).exclude(**{name: 4})] == [2]


def test_records_that_have_a_reserved_name_are_read_with_an_upgrade(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(on_write, "VERB_KEYWORDS", {})

        class OldJob(KvModel, collection="jobs"):
            id: PrimaryKey[int]
            progress: int

    class Job(KvModel, collection="jobs"):
        id: PrimaryKey[int]
        percent: int

        class Meta:
            schema_version = 2

        @upgrade(to=2, touches=("progress", "percent"))
        @staticmethod
        def rename_progress(document: dict[str, Any]) -> dict[str, Any]:
            document["percent"] = document.pop("progress")
            return document

    with Database("memory://renamed-progress", models=[OldJob]) as old:
        old[OldJob].insert(OldJob(id=1, progress=40))
        with Database("memory://renamed-progress", models=[Job]) as new:
            new.apply()
            assert new[Job].get(1).percent == 40
