"""Django's ORM as its documentation writes it. Its settings are global, so a process holds one such side.

Rules of this module: the asynchronous methods are Django's own, which run in one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections, models, transaction
from psycopg.conninfo import conninfo_to_dict

from benchmarks.postgres.sessions import CONTENDED, PAGE, SCHEMA, Operations, city, email, fields

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "OPTIONS": {}}},
    INSTALLED_APPS=[],
    USE_TZ=True,
)
django.setup()


class DjangoPerson(models.Model):
    """The record of the comparison."""

    id = models.BigIntegerField(primary_key=True)
    email = models.TextField(unique=True)
    city = models.TextField(db_index=True)
    name = models.TextField()
    visits = models.IntegerField()

    class Meta:
        """The table that was made by hand."""

        app_label = "benchmarks"
        db_table = "people"


_People = cast("Any", DjangoPerson)


def people_of(url: str) -> Any:
    """Return the manager of the records in a database."""
    given = conninfo_to_dict(url)
    chosen = cast("Any", connections).settings["default"]
    for name, parameter in (("NAME", "dbname"), ("USER", "user"), ("HOST", "host"), ("PORT", "port")):
        chosen[name] = str(given.get(parameter, ""))
    chosen["PASSWORD"] = str(given.get("password", ""))
    chosen["OPTIONS"]["options"] = f"-csearch_path={SCHEMA.format(library='django')}"
    return _People.objects


def locked_update(url: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return a function that raises the visits of one record while it holds its row lock, and one that disconnects."""
    people = people_of(url)

    def raise_visits() -> None:
        with transaction.atomic():
            person = people.select_for_update().get(pk=CONTENDED)
            person.visits += 1
            person.save(update_fields=["visits"])

    return raise_visits, connections.close_all


def _update(number: int) -> None:
    person = _People.objects.get(pk=number)
    person.name = f"Ada {number}"
    person.save(update_fields=["name"])


def threads(url: str) -> Operations:
    """Return the operations of a thread."""
    people = people_of(url)
    one = people.filter(pk=CONTENDED)
    return Operations(
        get=lambda number: people.get(pk=number),
        unique_get=lambda number: people.get(email=email(number)),
        page=lambda number: list(people.filter(city=city(number)).order_by("id")[:PAGE]),
        insert=lambda number: people.create(**fields(number)),
        update=_update,
        contended_update=lambda _: one.update(visits=models.F("visits") + 1),
        close=connections.close_all,
    )


async def tasks(url: str) -> Operations:
    """Return the operations of a task."""
    people = people_of(url)
    one = people.filter(pk=CONTENDED)

    async def page(number: int) -> list[Any]:
        return [person async for person in people.filter(city=city(number)).order_by("id")[:PAGE]]

    async def update(number: int) -> None:
        person = await people.aget(pk=number)
        person.name = f"Ada {number}"
        await person.asave(update_fields=["name"])

    return Operations(
        get=lambda number: people.aget(pk=number),
        unique_get=lambda number: people.aget(email=email(number)),
        page=page,
        insert=lambda number: people.acreate(**fields(number)),
        update=update,
        contended_update=lambda _: one.aupdate(visits=models.F("visits") + 1),
        close=sync_to_async(connections.close_all),
    )
