"""The table of costs on the page about queries is what an engine is asked for, measured here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvmodels import Count, Database, Indexed, KvModel, Max, PrimaryKey, Unique
from kvmodels.api._sync.repository import Repository
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.docs.measured_engine import Cost, MeasuredEngine
from tests.source_tree import REPOSITORY

PAGE = REPOSITORY / "docs" / "guides" / "costs.md"


class User(KvModel, collection="users"):
    """The model of the page: one unique and one other index; 300 users, 100 of each colour."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: str = ""


def user(number: int, color: str = "red") -> User:
    return User(id=number, email=f"{number}@x.org", color=color)


def changed(loaded: User, **values: str) -> User:
    for name, value in values.items():
        setattr(loaded, name, value)
    return loaded


CALLS: dict[str, Callable[[Repository[User]], object]] = {
    "users.get(1)": lambda users: users.get(1),
    'users.get(email="1@x.org")': lambda users: users.get(email="1@x.org"),
    'users.get_or_none(email="nobody@x.org")': lambda users: users.get_or_none(email="nobody@x.org"),
    "users.in_bulk([1, 2, …, 10])": lambda users: users.in_bulk(range(1, 11)),
    'users.filter(color="red").to_list()': lambda users: users.filter(color="red").to_list(),
    'users.filter(color="red")[:10].to_list()': lambda users: users.filter(color="red")[:10].to_list(),
    'users.filter(color="red").first()': lambda users: users.filter(color="red").first(),
    'users.filter(color="red").exists()': lambda users: users.filter(color="red").exists(),
    'users.filter(color="red").count()': lambda users: users.filter(color="red").count(),
    'users.filter(color="red").page(size=10)': lambda users: users.filter(color="red").page(size=10),
    'users.all().order_by("-id")[:10].to_list()': lambda users: users.all().order_by("-id")[:10].to_list(),
    'users.filter(color="red").values_list("id", flat=True).to_list()': lambda users: (
        users.filter(color="red").values_list("id", flat=True).to_list()
    ),
    'users.filter(color="red", name="Ada").to_list()': lambda users: users.filter(color="red", name="Ada").to_list(),
    'users.filter(color__in=["red", "blue"]).to_list()': lambda users: users.filter(
        color__in=["red", "blue"]
    ).to_list(),
    'users.all().order_by("name").sort_in_memory()[:10].to_list()': lambda users: (
        users.all().order_by("name").sort_in_memory()[:10].to_list()
    ),
    'users.values_list("color", flat=True).distinct().to_list()': lambda users: (
        users.values_list("color", flat=True).distinct().to_list()
    ),
    'users.filter(color="red").aggregate(Max("id"))': lambda users: users.filter(color="red").aggregate(Max("id")),
    'users.group_by("color").aggregate(Count()).to_list()': lambda users: (
        users.group_by("color").aggregate(Count()).to_list()
    ),
    "users.create(…), users.insert(obj)": lambda users: users.insert(user(1000)),
    "users.save(obj), a plain field changed": lambda users: users.save(changed(LOADED[0], name="Ada")),
    "users.save(obj), color changed": lambda users: users.save(changed(LOADED[0], color="blue")),
    "users.save(obj), email changed": lambda users: users.save(changed(LOADED[0], email="new@x.org")),
    "users.save(obj), nothing changed": lambda users: users.save(LOADED[0]),
    "users.patch(1, name=…)": lambda users: users.patch(1, name="Ada"),
    "users.patch(1, color=…)": lambda users: users.patch(1, color="blue"),
    "users.patch(1, email=…)": lambda users: users.patch(1, email="new@x.org"),
    "users.mutate(1, function), color changed": lambda users: users.mutate(1, lambda u: changed(u, color="blue")),
    "users.get_or_create(email=…), found": lambda users: users.get_or_create(email="1@x.org"),
    "users.get_or_create(email=…), created": lambda users: users.get_or_create(
        email="new@x.org", defaults={"id": 1000, "color": "red"}
    ),
    "users.refresh(obj)": lambda users: users.refresh(LOADED[0]),
    "users.remove(1)": lambda users: users.remove(1),
    "users.remove(obj)": lambda users: users.remove(LOADED[0]),
    "users.bulk_create(100 objects)": lambda users: users.bulk_create(user(n) for n in range(1000, 1100)),
    "users.update_or_create(id=1, …)": lambda users: users.update_or_create(id=1, defaults={"name": "Ada"}),
    "users.bulk_update(100 objects)": lambda users: users.bulk_update(LOADED[:100]),
    'users.filter(color="red").update(name=…)': lambda users: users.filter(color="red").update(name="Ada"),
    'users.filter(color="red").update(color=…)': lambda users: users.filter(color="red").update(color="blue"),
    'users.filter(color="red").delete()': lambda users: users.filter(color="red").delete(),
    "users.all().update(name=…)": lambda users: users.all().update(name="Ada"),
    'users.all().update(name=…, resume_id="a")': lambda users: users.all().update(name="Ada", resume_id="a"),
}

LOADED: list[User] = []


def cost_of(call: Callable[[Repository[User]], object]) -> Cost:
    engine = MeasuredEngine(MemoryEngine())
    with Database.from_engine(engine, DatabaseCore([User])) as db:
        users = db[User]
        users.bulk_create(user(n, ("red", "blue", "green")[n % 3 - 1]) for n in range(1, 301))
        LOADED[:] = users.to_list()
        engine.take()
        call(users)
        return engine.take()


def cost_rows() -> list[str]:
    """The table as the page has to show it."""
    return [f"| `{name}` | " + " | ".join(map(str, cost_of(call))) + " |" for name, call in CALLS.items()]


@pytest.mark.fast_kinds
def test_the_page_shows_what_each_call_costs():
    shown = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `users.")]
    assert shown == cost_rows(), "\n".join(cost_rows())


def test_the_cost_of_a_call_does_not_depend_on_how_much_is_stored():
    call = CALLS['users.get(email="1@x.org")']
    engine = MeasuredEngine(MemoryEngine())
    costs = set()
    with Database.from_engine(engine, DatabaseCore([User])) as db:
        for size in (10, 100, 1_000):
            db[User].bulk_create((user(n) for n in range(size)), on_conflict="ignore")
            engine.take()
            call(db[User])
            costs.add(engine.take())
    assert len(costs) == 1
