"""Runs a call of Django and its counterpart here on the same records, and compares answers and records.

A page declares models in ``python`` blocks, with a function ``filled()`` that returns a database with records, and has
tables whose rows are a call of Django and its counterpart, each in a span of code. The models of Django have the same
names and fields; they are filled from that database. In a call, each repository has the name of its collection, and
each model in lower case is its record with the key 1.

Rules of this module: lists are compared in their order if the call of Django names one. ``delete()`` returns different
things on both sides; after a call that writes, all records are compared.
"""

from __future__ import annotations

import importlib
import re
import sys
from datetime import date
from types import ModuleType
from typing import Any, NamedTuple

import django
from django.conf import settings
from django.core.paginator import Paginator
from django.db import connection, models
from django.db.models import functions

import kvmodels
from kvmodels import BulkResult, Database, KvModel
from tests.source_tree import REPOSITORY

PAGES = REPOSITORY / "docs" / "guides" / "coming-from"
APPLICATIONS = ("monitoring", "bookmarking", "library")
NOT_THERE = "not there: "
CALL = re.compile(r"^`(.*)`$")
WRITES = re.compile(r"\.(add|bulk_create|bulk_update|delete|remove|save|set)\(")
"""Calls whose answers differ, or say nothing: the records afterwards are compared."""

CHANGES = re.compile(f"{WRITES.pattern}|\\.(create|get_or_create|update)\\(")

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Row(NamedTuple):
    """A row of a table: where the call is, the call of Django, its counterpart or why there is none, and a kind."""

    place: str
    django: str
    here: str
    kind: str

    @property
    def is_there(self) -> bool:
        return not self.here.startswith(NOT_THERE)


class Section(NamedTuple):
    """A part of a page with models: the code of its blocks, and the rows of its tables."""

    title: str
    code: str
    rows: list[Row]


def started() -> None:
    """Configure Django with a database in memory, once in a process."""
    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            INSTALLED_APPS=[f"tests.ported.{name}" for name in APPLICATIONS],
            DEFAULT_AUTO_FIELD="django.db.models.AutoField",
            USE_TZ=True,
        )
        django.setup()
        with connection.schema_editor() as editor:
            for name in APPLICATIONS:
                for model in django_models(name).values():
                    if not model._meta.auto_created:
                        editor.create_model(model)


def django_models(application: str) -> dict[str, Any]:
    """Return the models of Django by name, with those of many-to-many fields by their names here."""
    module = importlib.import_module(f"tests.ported.{application}.models")
    found = {one.__name__: one for one in vars(module).values() if isinstance(one, type) and is_model(one)}
    return found | module.THROUGH


def is_model(value: type) -> bool:
    return issubclass(value, models.Model) and value is not models.Model


def section_of(page: str, title: str) -> Section:
    """Return the section of a page with this title."""
    text = (PAGES / page).read_text("utf-8")
    (body,) = (part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.startswith(f"{title}\n"))
    rows = []
    for line in body.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and CALL.match(cells[1]):
            place, call, here, kind = cells
            quoted = CALL.match(here)
            rows.append(Row(place, call[1:-1], quoted[1] if quoted else here, kind))
    return Section(title, "\n".join(PYTHON.findall(body)), rows)


class Sides:
    """Both programs of a section, filled anew after each row that writes.

    Args:
        application: the folder with the models of Django.
        section: of a page.
    """

    def __init__(self, application: str, section: Section) -> None:
        started()
        module = ModuleType(f"ported_{application}")
        sys.modules[module.__name__] = module  # where Pydantic looks up annotations
        self._here = module.__dict__
        self._here.update({name: getattr(kvmodels, name) for name in kvmodels.__all__}, date=date)
        exec(compile(section.code, section.title, "exec"), self._here)
        self._django = django_models(application)
        self._db: Database | None = None

    def answers(self, row: Row) -> tuple[Any, Any]:
        """Return what each side answers, with all its records afterwards: of Django, and of its counterpart."""
        is_ordered = "order_by(" in row.django
        if self._db is None:
            self._db = self._here["filled"]()
            self._copy(self._db)
        db = self._db
        there, here = eval(row.django, self._names_there()), eval(row.here, self._names_here(db))
        if WRITES.search(row.django):
            there = here = None
        there, here = plain(there, is_ordered=is_ordered), plain(here, is_ordered=is_ordered)
        if not CHANGES.search(row.django):
            return there, here
        self._db = None  # the next row gets new records
        with db:
            records = {model.__name__: [fields_of(one) for one in db[model].all()] for model in db.models}
        others = {model.__name__: self._rows(model) for model in db.models}
        return (there, others), (here, {name: sorted(rows, key=repr) for name, rows in records.items()})

    def _copy(self, db: Database) -> None:
        """Store the records of a database with Django, in place of all others."""
        for other in reversed(self._django.values()):
            other.objects.all().delete()
        for model in db.models:
            other = self._django[model.__name__]
            attributes = attributes_of(other, model)
            rows = [dict(zip(attributes, fields_of(one), strict=True)) for one in db[model].all()]
            other.objects.bulk_create([other(**row) for row in rows])

    def _rows(self, model: type[KvModel]) -> list[Any]:
        """Return the records of Django's model with the fields of a model here."""
        other = self._django[model.__name__]
        attributes = attributes_of(other, model)
        return sorted(other.objects.values_list(*attributes), key=repr)

    def _names_there(self) -> dict[str, Any]:
        first = {name.lower(): model.objects.filter(pk=1).first() for name, model in self._django.items()}
        return {**vars(models), **vars(functions), "Paginator": Paginator, **self._django, **first}

    def _names_here(self, db: Database) -> dict[str, Any]:
        self._here.update({f"{model.__name__.lower()}s": db[model] for model in db.models}, db=db)
        self._here.update({model.__name__: model for model in db.models})
        simple: Any = [model for model in db.models if "id" in model.model_fields]
        first = {model.__name__.lower(): db[model].get_or_none(1) for model in simple}
        return {**self._here, **first}


def attributes_of(other: Any, model: type[KvModel]) -> list[str]:
    """Return the attributes of Django's model with the stored values of the fields of a model here."""
    fields = [*model.model_fields]
    if fields == ["owner_id", "target_id"]:
        fields = list(other.ends)
    return [other._meta.get_field(name).attname for name in fields]


def fields_of(record: KvModel) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in type(record).model_fields)


def plain(value: Any, *, is_ordered: bool) -> Any:
    """Return an answer of either side in one form."""
    if isinstance(value, KvModel | models.Model):
        return f"{type(value).__name__} {value.pk}"
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, dict):
        return {name: plain(one, is_ordered=is_ordered) for name, one in value.items()}
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, BulkResult):
        return value.written
    found = [plain(one, is_ordered=True) for one in value]
    return found if is_ordered or isinstance(value, tuple) else sorted(found, key=repr)
