"""Files that cannot be used or written: a typed error with a hint, the file left as it was, and usable afterwards."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from kvmodels import (
    Database,
    EngineError,
    ForeignFileError,
    ReadOnlyError,
    SchemaMismatchError,
    StorageFullError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.flows.retry_policy import RetryPolicy
from tests.engines.processes import run
from tests.robustness.models import MODELS, Member, Seat, ada, refused, stored_rows
from tests.robustness.test_closed_stores import READS, WRITES


def foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bills (id INTEGER PRIMARY KEY)")
        connection.commit()


FOREIGN = {
    "text": lambda path: path.write_text("dear diary\n" * 100),
    "an image": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(1_000)),
    "the database of another application": foreign_database,
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_that_is_not_ours_is_refused_and_left_byte_for_byte(tmp_path, make, readonly):
    path = tmp_path / "app.db"
    make(path)
    before = path.read_bytes()
    refused(lambda: Database(path, models=MODELS, readonly=readonly), ForeignFileError, url=str(path))
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["app.db"]


def test_a_path_where_no_file_can_be_is_refused(tmp_path):
    refused(lambda: Database(tmp_path, models=MODELS), EngineError)
    refused(lambda: Database(tmp_path / "missing" / "app.db", models=MODELS), EngineError)
    refused(lambda: Database(tmp_path / "app.db", models=MODELS, readonly=True), EngineError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", WRITES)
def test_a_database_opened_for_reading_only_refuses_every_write(tmp_path, verb):
    path = tmp_path / "app.db"
    with Database(path, models=MODELS) as db:
        db[Member].insert(ada())
    with Database(path, models=MODELS, readonly=True) as db:
        before = stored_rows(db)
        if verb == "build_indexes":
            assert db.build_indexes() == ()
        else:
            refused(lambda: WRITES[verb](db), ReadOnlyError)
        assert stored_rows(db) == before


@pytest.mark.parametrize("verb", READS)
def test_a_database_opened_for_reading_only_answers_every_read(tmp_path, verb):
    path = tmp_path / "app.db"
    with Database(path, models=MODELS) as db:
        db[Member].insert(ada())
        expected = READS[verb](db)
    with Database(path, models=MODELS, readonly=True) as db:
        assert READS[verb](db) == expected


def test_a_new_collection_in_a_store_that_is_read_only_says_so(tmp_path):
    path = tmp_path / "app.db"
    Database(path, models=[Member]).close()
    with Database(path, models=MODELS, readonly=True) as db:
        assert db[Member].count() == 0
        assert db[Seat].get_or_none(("A", 1)) is None
        refused(lambda: db[Seat].create(hall="A", number=1), SchemaMismatchError, collection="seats")


def test_a_file_without_write_permission_is_read_and_every_write_says_so():
    folder = Path(tempfile.mkdtemp())  # the folders of pytest cannot be entered by another user
    try:
        folder.chmod(0o777)
        path = folder / "app.db"
        with Database(path, models=MODELS) as db:
            db[Member].insert(ada())
        path.chmod(0o444)
        printed = run(
            """
            import json, os, sys
            # While this user may still read the package and the standard library:
            import kvmodels.engines.sqlite.engine, kvmodels.schema.compile.request_bodies
            from kvmodels import Database, KvModelsError
            from tests.robustness.models import MODELS, Member
            from tests.robustness.test_closed_stores import READS, WRITES
            # Permissions do not bind the administrator; modules are imported, so the rights are not needed any more.
            if os.getuid() == 0:
                os.setuid(65534)
            answers = {}
            with Database(sys.argv[1], models=MODELS) as db:
                for name, call in {**READS, **WRITES}.items():
                    try:
                        call(db)
                        answers[name] = "no error"
                    except KvModelsError as error:
                        answers[name] = type(error).__name__
            print(json.dumps(answers))
            """,
            path,
        )
        answers = json.loads(printed)
        writes = set(WRITES) - {"build_indexes"}
        assert {name for name in answers if answers[name] == "ReadOnlyError"} == writes
        assert {name for name in answers if answers[name] == "no error"} == set(READS) | {"build_indexes"}
    finally:
        shutil.rmtree(folder)


def test_a_full_database_refuses_writes_whole_and_goes_on(tmp_path):
    path = tmp_path / "app.db"
    engine = SqliteEngine(path)
    core = DatabaseCore(MODELS, retry=RetryPolicy(), readonly=False, must_be_current=False)
    with Database.from_engine(engine, core) as db:
        users = db[Member]
        loaded = users.insert(ada())
        writer = engine.check_open().writer
        assert writer is not None
        writer.execute("PRAGMA max_page_count = 40").fetchall()
        before, large = stored_rows(db), "x" * 500_000
        many = [Member(id=i, email=f"{i}", color="red", note="x" * 1_000) for i in range(2, 500)]
        loaded.note = large
        for call in (
            lambda: users.create(id=2, email="b@x.org", color="blue", note=large),
            lambda: users.save(loaded),
            lambda: users.patch(1, note=large, email="new@x.org"),
            lambda: users.bulk_create(many),
        ):
            raised = refused(call, StorageFullError)
            assert "space" in str(raised.hint)
            assert stored_rows(db) == before
        users.refresh(loaded)
        loaded.color = "green"
        users.save(loaded)
        assert users.get(email="ada@x.org").color == "green"
        assert db.check().ok
    with Database(path, models=MODELS) as db:
        assert db[Member].create(id=2, email="b@x.org", color="blue", note=large).pk == 2
        assert db.check().ok


@pytest.mark.servers
def test_a_file_that_may_not_grow_loses_no_acknowledged_record_and_holds_no_half(tmp_path):
    path = tmp_path / "app.db"
    printed = run(
        """
        import json, resource, sys
        from kvmodels import Database, StorageFullError
        from tests.robustness.models import MODELS, Member
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        stored, refused = [], []
        with Database(sys.argv[1], models=MODELS) as db:
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
            for number in range(300):
                try:
                    if number % 3 == 2 and stored:
                        db[Member].patch(stored[-1], email=f"changed-{number}@x.org", note="y" * 3_000)
                    else:
                        db[Member].create(id=number, email=f"{number}@x.org", color="red", note="x" * 2_000)
                        stored.append(number)
                except StorageFullError as error:
                    assert error.hint
                    refused.append(number)
            clean = db.check().ok and db[Member].count() == len(stored)
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            db[Member].create(id=999, email="after@x.org", color="red")
        print(json.dumps([stored, len(refused), clean]))
        """,
        path,
    )
    stored, refusals, clean = json.loads(printed)
    assert clean
    assert len(stored) > 10
    assert refusals > 10
    with Database(path, models=MODELS) as db:
        assert [found.id for found in db[Member].all()] == [*stored, 999]
        assert db.check().ok
