"""Stores of earlier releases, whose tables lack what early commits need: rights, promises, snapshots in the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from kvmodels.core.operations import point
from kvmodels.engines.postgres import schema
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.postgres.schema import FUNCTIONS, WITHOUT_SEALS
from kvmodels.errors import EngineError, EngineTimeoutError, InvalidArgumentError
from tests.contract.shorthand import commit, put
from tests.postgres.databases import Databases
from tests.postgres.early import AlwaysEarly, use_mode

DATA = Path(__file__).parent.parent / "data" / "postgres"

pytestmark = pytest.mark.servers


@pytest.fixture
def url(databases: Databases) -> str:
    return databases.url()


@pytest.fixture
def admin(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(f"{url}-admin", autocommit=True) as one:
        yield one
        # The tables of other tests are those of this release.
        one.execute("DROP SCHEMA IF EXISTS kvmodels CASCADE; DROP ROLE IF EXISTS app")


@pytest.fixture
def older(admin: psycopg.Connection) -> None:
    """A store as the sixth set of functions had it, and a role that may write it."""
    admin.execute("DROP SCHEMA IF EXISTS kvmodels CASCADE; CREATE SCHEMA kvmodels; DROP ROLE IF EXISTS app")
    for name in ("tables_6.sql", "functions_6.sql"):
        admin.execute((DATA / name).read_text("utf-8").replace("SCHEMA.", '"kvmodels".').encode())
    admin.execute(
        "UPDATE kvmodels.meta SET functions = 6; CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA kvmodels TO app;"
        " GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kvmodels TO app"
    )


def settings(admin: psycopg.Connection) -> tuple[int, bool]:
    return admin.execute("SELECT functions, durable_reads FROM kvmodels.meta").fetchall()[0]


@pytest.mark.usefixtures("older")
def test_an_upgraded_store_keeps_durable_reads_until_it_is_told_otherwise(url: str, admin: psycopg.Connection):
    engine = PostgresEngine(url)
    use_mode(engine, AlwaysEarly)
    commit(engine, put(b"k"))
    assert settings(admin) == (FUNCTIONS, True)
    assert admin.execute("SELECT count(*) FROM kvmodels.commits WHERE base IS NOT NULL").fetchall() == [(0,)]
    engine.close()
    again = PostgresEngine(url, durable_reads=False)
    use_mode(again, AlwaysEarly)
    commit(again, put(b"k"))
    assert settings(admin) == (FUNCTIONS, False)
    assert admin.execute("SELECT count(*) FROM kvmodels.commits WHERE base IS NOT NULL").fetchall() == [(1,)]
    again.close()


def test_a_new_store_has_reads_that_may_not_be_durable(url: str, admin: psycopg.Connection):
    admin.execute("DROP SCHEMA IF EXISTS kvmodels CASCADE")
    PostgresEngine(url).close()
    assert settings(admin) == (FUNCTIONS, False)
    PostgresEngine(url, durable_reads=True).close()
    PostgresEngine(url).close()
    assert settings(admin) == (FUNCTIONS, True)


@pytest.mark.usefixtures("older")
def test_a_role_that_could_write_an_older_store_can_seal_in_the_new_one(url: str):
    PostgresEngine(url, durable_reads=False).close()
    engine = PostgresEngine(url.replace("postgres@", "app@"))
    use_mode(engine, AlwaysEarly)
    commit(engine, put(b"k"))
    engine.close()


@pytest.mark.usefixtures("older")
def test_an_upgrade_that_does_not_copy_the_rights_is_convicted(url: str, monkeypatch: pytest.MonkeyPatch):
    text = schema._text
    copied = "EXECUTE pg_catalog.format('GRANT"
    assert copied.encode() in text("upgrade.sql", "kvmodels")
    with monkeypatch.context() as patch:
        patch.setattr(
            schema, "_text", lambda *of: text(*of).replace(copied.encode(), b"PERFORM pg_catalog.format('GRANT")
        )
        PostgresEngine(url, durable_reads=False).close()
    with pytest.raises(EngineError):
        PostgresEngine(url.replace("postgres@", "app@"))


@pytest.mark.usefixtures("older")
def test_a_role_that_may_commit_and_not_seal_is_refused(url: str, admin: psycopg.Connection):
    PostgresEngine(url).close()
    admin.execute("REVOKE INSERT ON kvmodels.seals FROM app")
    with pytest.raises(EngineError) as caught:
        PostgresEngine(url.replace("postgres@", "app@"))
    assert "GRANT" in (caught.value.hint or "")


@pytest.mark.usefixtures("older")
def test_a_store_that_a_snapshot_keeps_from_its_upgrade_is_opened_as_it_is(url: str, admin: psycopg.Connection):
    with psycopg.connect(f"{url}-dump") as dump:
        dump.execute("SELECT count(*) FROM kvmodels.commits, kvmodels.meta")
        engine = PostgresEngine(url, busy_timeout=0.01)
        commit(engine, put(b"k"))
        assert engine.read([point(b"k")]).ranges[0]  # type: ignore[union-attr]
        assert admin.execute("SELECT functions FROM kvmodels.meta").fetchall() == [(WITHOUT_SEALS,)]
        engine.close()
        with pytest.raises(EngineTimeoutError):
            PostgresEngine(url, busy_timeout=0.01, durable_reads=False)
    PostgresEngine(url).close()
    assert settings(admin) == (FUNCTIONS, True)


def test_the_option_takes_true_false_and_none(url: str):
    with pytest.raises(InvalidArgumentError):
        PostgresEngine(url, durable_reads=1)  # type: ignore[arg-type]
    engine = PostgresEngine(url, durable_reads=True)
    with pytest.raises(InvalidArgumentError):
        PostgresEngine(url, durable_reads=False)
    PostgresEngine(url).close()
    engine.close()
