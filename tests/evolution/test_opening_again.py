"""A process that remembers an opening has the same state as one that reads the header again."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kvmodels import Database, Indexed, KvModel, PrimaryKey, SchemaMismatchError, Unique
from kvmodels.catalog.collection import join, record_layout, rejoin
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.evolution import header


def reader(name: str, **columns: Any) -> Any:
    """A class of the collection ``readers``, as another release would declare it."""
    annotations: dict[str, Any] = {"id": PrimaryKey[int], **columns}
    return type(name, (KvModel,), {"__annotations__": annotations, "__module__": __name__}, collection="readers")


def view_of(db: Database) -> HeaderView:
    """The header as the database has read it."""
    view = db._core.context.view
    assert view is not None
    return view


def test_a_second_opening_knows_what_joining_anew_finds(tmp_path: Path):
    model = reader("Reader", email=Unique[str], colour=Indexed[str])
    for _ in range(3):
        with Database(tmp_path / "app.db", models=[model]) as db:
            view = view_of(db)
            live, schema = view.live["readers"], db._core.schemas["readers"]
            anew = join(schema, view.header, {})
            for one in fields(type(live)):
                if one.name not in ("layout", "maintained", "readable"):
                    assert getattr(live, one.name) == getattr(anew, one.name), one.name
            assert live.layout.prefix == anew.layout.prefix
            assert live.layout is record_layout(schema)
            assert [ix.stored for ix in live.maintained] == [ix.stored for ix in anew.maintained]
            assert [ix.layout.prefix for ix in live.maintained] == [ix.layout.prefix for ix in anew.maintained]
            assert live.readable.keys() == anew.readable.keys()


def test_plans_are_not_shared_by_two_stores_of_one_class():
    model = reader("Reader", email=Unique[str])
    with Database(models=[model]) as one, Database(models=[model]) as two:
        views = [view_of(db) for db in (one, two)]
        assert views[0].header is views[1].header
        first, second = (view.live["readers"] for view in views)
        assert first.maintained is second.maintained
        assert first.compiled is not second.compiled
        assert first.compiled.plans is not second.compiled.plans
        one[model].create(id=1, email="ada@x.org")
        assert one[model].count() == 1
        assert two[model].count() == 0
        assert one[model].get(email="ada@x.org").id == 1
        assert two[model].get_or_none(email="ada@x.org") is None


def test_a_header_that_another_release_has_changed_is_not_taken_for_the_remembered_one(tmp_path: Path):
    path = tmp_path / "app.db"
    old, new = reader("Old", email=str), reader("New", email=Indexed[str])
    for model in (old, old):
        with Database(path, models=[model]) as db:
            db[model].remove(1) if db[model].exists() else db[model].create(id=1, email="ada@x.org")
    with Database(path, models=[old]) as db:
        db[old].create(id=2, email="bob@x.org")
    for ready in (False, True):
        with Database(path, models=[new]) as db:
            assert bool(view_of(db).live["readers"].states) is not ready
            db.build_indexes()
            assert [one.id for one in db[new].filter(email="bob@x.org")] == [2]
    with Database(path, models=[old]) as db, pytest.raises(SchemaMismatchError):
        db[old].create(id=3, email="eve@x.org")  # it cannot keep the index


def test_what_is_refused_is_an_error_of_each_store(tmp_path: Path):
    path = tmp_path / "app.db"
    model = reader("Reader", email=str)
    with Database(path, models=[model]) as db:
        db[model].create(id=1, email="ada@x.org")
    other = type(
        "Other", (KvModel,), {"__annotations__": {"id": PrimaryKey[str]}, "__module__": __name__}, collection="readers"
    )
    errors = []
    for _ in range(2):
        with Database(path, models=[other]) as db:
            with pytest.raises(SchemaMismatchError) as caught:
                db[other].get("1")
            errors.append(caught.value)
    assert errors[0] is not errors[1]


def test_a_second_opening_of_the_same_classes_compares_no_prefixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    check = header.check_prefixes

    def counted(context: Context, view: HeaderView) -> None:
        calls.append(1)
        check(context, view)

    monkeypatch.setattr(header, "check_prefixes", counted)
    model, beside = (
        reader("Reader", email=Unique[str]),
        type(
            "Beside",
            (KvModel,),
            {"__annotations__": {"id": PrimaryKey[int]}, "__module__": __name__},
            collection="beside",
        ),
    )
    path = tmp_path / "app.db"
    for models, expected in (
        ([model], [1, 1]),
        ([model], []),
        ([model, beside], [1, 1]),
        ([model, beside], []),
        ([model], [1]),  # the header has another collection now
        ([model], []),
        ([beside, model], [1]),
    ):
        calls.clear()
        Database(path, models=models).close()
        assert calls == expected, models


def test_a_remembered_join_holds_for_its_header_only():
    model = reader("Reader", email=Unique[str])
    with Database(models=[model]) as db:
        view = view_of(db)
        schema = db._core.schemas["readers"]
        emptied = type(view.header)({})
        assert rejoin(schema, emptied).read_only is not None
        assert rejoin(schema, view.header).read_only is None
        assert rejoin(schema, emptied).states
