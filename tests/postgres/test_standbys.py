"""A standby that lags loses commits, and programs of the lost history meet the new one."""

from __future__ import annotations

from urllib.parse import quote

import psycopg
import pytest

from kvmodels import Database, Indexed, KvModel, PrimaryKey, StaleObjectError
from kvmodels.core.operations import ReadRange
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.errors import EngineTimeoutError, ReadOnlyError, ResumeExpiredError
from tests.contract.shorthand import EVERYTHING, commit, get, keys, put
from tests.crowd import until
from tests.postgres.proxy import proxy_of
from tests.postgres.server import own_server
from tests.postgres.test_faults import standby_of

pytestmark = pytest.mark.servers

CHANGES = ReadRange(b"", b"\xff", 10)


class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    text: Indexed[str]


def test_an_asynchronous_standby_loses_acknowledged_commits_and_nothing_of_them_comes_back():
    """As the guide says: a synchronous standby is what keeps them."""
    with (
        own_server() as primary,
        proxy_of(primary.folder) as proxy,
        standby_of(primary, proxy) as standby,
    ):
        standby.start(standby.users)
        hosts = quote(f"{primary.folder},{standby.folder}", safe=",")
        url = f"postgresql://postgres@/postgres?host={hosts}"
        engine = PostgresEngine(url, change_log=60, busy_timeout=20)
        db = Database(url, models=[Page], busy_timeout=20)
        pages = db[Page]
        pages.create(id=1, text="first")
        lasting = commit(engine, put(b"lasting"))
        with psycopg.connect(standby.url, autocommit=True) as reader:
            until(lambda: reader.execute("SELECT to_regclass('kvmodels.meta')").fetchone() != (None,))
            until(lambda: reader.execute("SELECT 1 FROM kvmodels.kv WHERE key = 'lasting'").fetchone())
        proxy.passing.clear()
        lost = commit(engine, put(b"lost"))
        page = pages.get(1)
        page.text = "of the lost future"
        pages.save(page)
        primary.stop()
        proxy.stop()
        standby.promote()

        until(lambda: answers(engine))
        assert keys(engine, ReadRange(b"l", b"m")) == [b"lasting"], "the commit was acknowledged, and is lost"
        with pytest.raises(StaleObjectError):
            pages.save(page)
        assert pages.get(1).text == "first"
        assert pages.filter(text="first").count() == 1
        after = commit(engine, put(b"after"))
        assert after > lost, "no versionstamp is given twice"
        assert [change.key for change in engine.changes(CHANGES, lasting).changes if change.key != b"h"][-1] == b"after"
        with pytest.raises(ResumeExpiredError):
            engine.changes(CHANGES, lost)
        assert db.check().ok
        db.close()
        engine.close()


def answers(engine: PostgresEngine) -> bool:
    try:
        get(engine, b"lasting")
    except EngineTimeoutError:
        return False
    return True


def test_a_standby_is_read_and_takes_no_writes():
    with own_server() as primary, standby_of(primary) as standby:
        writer = PostgresEngine(primary.url)
        commit(writer, put(b"k"))
        standby.start(standby.users)
        with psycopg.connect(standby.url, autocommit=True) as admin:
            until(lambda: admin.execute("SELECT to_regclass('kvmodels.meta')").fetchone() != (None,))
        reader = PostgresEngine(standby.url, readonly=True)
        until(lambda: keys(reader, EVERYTHING) == [b"k"])
        with reader.snapshot() as snapshot:
            assert keys(snapshot, EVERYTHING) == [b"k"]
        with pytest.raises(ReadOnlyError):
            commit(reader, put(b"l"))
        with pytest.raises(EngineTimeoutError):
            PostgresEngine(standby.url, busy_timeout=1)
        reader.close()
        writer.close()
