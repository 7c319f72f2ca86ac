"""Names of Django that do not exist here raise errors that say what to write."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import PrivateAttr

from kvmodels import (
    AsyncDatabase,
    Database,
    Field,
    ForeignKey,
    KvModel,
    PrimaryKey,
    UnknownFieldError,
    UnknownLookupError,
)


class Project(KvModel, collection="projects"):
    id: PrimaryKey[int]
    name: str = ""


class Task(KvModel, collection="tasks"):
    id: PrimaryKey[int]
    project_id: ForeignKey[int, Project]
    owner: ForeignKey[int | None, Project] = Field(default=None)
    title: str = ""


class Named(KvModel, collection="named"):
    id: PrimaryKey[int]
    objects: list[int] = []
    save: bool = False
    _meta: int = PrivateAttr(default=5)


QUERY_NAMES = ("annotate", "prefetch_related", "select_for_update", "select_related", "defer")


@pytest.mark.parametrize("opened", [Database, AsyncDatabase])
@pytest.mark.parametrize("name", QUERY_NAMES)
def test_a_method_of_django_names_the_way(name: str, opened: Any):
    tasks = opened("memory://", models=[Project, Task])[Task]
    for thing in (tasks, tasks.filter(id=1)):
        assert not hasattr(thing, name)
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'\. Django's name; here, ") as caught:
            getattr(thing, name)
        assert caught.value.name == name
        assert getattr(thing, name, None) is None


def test_another_missing_attribute_is_the_plain_error():
    tasks = Database("memory://", models=[Project, Task])[Task]
    with pytest.raises(AttributeError, match=r"^'Repository' object has no attribute 'nothing'$"):
        tasks.nothing  # type: ignore[attr-defined]


def test_names_of_managers_and_of_records_name_the_way():
    task = Task(id=1, project_id=1)
    for thing, name in ((Task, "objects"), (Task, "_meta"), (task, "save"), (task, "refresh_from_db")):
        assert not hasattr(thing, name)
        with pytest.raises(AttributeError, match="Django's name; here, "):
            getattr(thing, name)
    with pytest.raises(AttributeError, match="nothing") as caught:
        task.nothing  # type: ignore[attr-defined]
    assert "Django" not in str(caught.value)


def test_fields_and_private_attributes_may_have_these_names():
    named = Named(id=1, objects=[2], save=True)
    assert (named.objects, named.save, named._meta) == ([2], True, 5)
    assert str(Named.objects).count("objects") == 1


@pytest.mark.parametrize("name", ["project__name", "project_id__name", "owner__name", "owner.name"])
def test_groups_by_a_field_of_a_target_name_the_way(name: str):
    tasks = Database("memory://", models=[Project, Task])[Task]
    assert tasks.values(name).to_list() == []
    with pytest.raises(UnknownFieldError, match="target of a foreign key") as caught:
        tasks.group_by(name)
    assert "Group by '" in (caught.value.hint or "")


@pytest.mark.parametrize("lookup", ["year", "regex", "iregex", "date"])
def test_lookups_of_django_name_the_way(lookup: str):
    tasks = Database("memory://", models=[Project, Task])[Task]
    with pytest.raises(UnknownLookupError) as caught:
        tasks.filter(**{f"title__{lookup}": "x"})
    assert caught.value.suggestion is None
    assert (caught.value.hint or "").startswith("There are no ")
