"""The fixtures of the pytest plugin, used as a program's tests use them; their failures in an inner run of pytest."""

from __future__ import annotations

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    EngineError,
    Field,
    Indexed,
    KvModel,
    PrimaryKey,
    Unique,
)
from tests.docs.test_blocks import blocks_of
from tests.source_tree import REPOSITORY

pytest_plugins = ["pytester"]

MODEL = """
    import pytest
    from kvmodels import Field, Indexed, KvModel, PrimaryKey

    class Thing(KvModel, collection="things"):
        id: PrimaryKey[int]
        color: Indexed[str] = Field(default="red")

    @pytest.fixture
    def kv_models():
        return [Thing]
"""


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]
    email: Unique[str]
    town: Indexed[str] = Field(default="Bern")


@pytest.fixture
def kv_models():
    return [Person]


def test_each_test_has_a_store_of_its_own(kv_db, kv_url):
    assert kv_db[Person].count() == 0
    kv_db[Person].create(id=1, email="ada@x.org")
    with Database(kv_url, models=[Person]) as other:
        assert other[Person].get(1).email == "ada@x.org"


async def test_the_asynchronous_database_shares_the_store_with_other_handles(kv_async_db, kv_url):
    async with kv_async_db as db:
        await db[Person].create(id=1, email="ada@x.org")
    async with AsyncDatabase(kv_url, models=[Person]) as again:
        assert await again[Person].count() == 1


def test_the_clock_moves_only_by_hand(kv_db, kv_clock):
    kv_db[Person].create(id=1, email="ada@x.org", town="Bern")
    kv_db[Person].save(kv_db[Person].get(1), expire_in=60)
    kv_clock.advance(59)
    assert kv_db[Person].get_or_none(1) is not None
    kv_clock.advance(2)
    assert kv_db[Person].get_or_none(1) is None


def test_reads_and_commits_are_counted(kv_db, kv_assert_calls):
    with kv_assert_calls(commits=1):
        kv_db[Person].create(id=1, email="ada@x.org")
    with kv_assert_calls(reads=1, commits=0):
        kv_db[Person].get(email="ada@x.org")
    with kv_assert_calls(commits=1), kv_db.transaction() as tx:
        tx[Person].patch(1, town="Chur")


def test_a_planned_conflict_is_met_and_retried(kv_db, kv_conflict, kv_assert_calls):
    kv_db[Person].create(id=1, email="ada@x.org")
    kv_conflict(Person, 1)
    with kv_assert_calls(commits=2):
        kv_db[Person].patch(1, town="Chur")
    assert kv_db[Person].get(1).town == "Chur"


def test_a_lost_answer_is_resolved_and_a_lost_request_sent_again(kv_db, kv_fault):
    kv_fault("lose_answer")
    kv_db[Person].create(id=1, email="ada@x.org")
    kv_fault("lose_request")
    kv_db[Person].create(id=2, email="bob@x.org")
    assert kv_db[Person].count() == 2
    kv_fault("refuse")
    with pytest.raises(EngineError, match="refused"):
        kv_db[Person].remove(1)


def run(pytester, test, *options):
    pytester.makepyfile(test_inner=MODEL + test)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:asyncio", *options)


def test_a_wrong_index_entry_fails_the_test_after_its_end(pytester):
    result = run(
        pytester,
        """
    def test_damage(kv_db):
        kv_db[Thing].create(id=1)
        with kv_db.kv.unsafe() as raw:
            raw.delete(("things_by_color", "red", 1))
""",
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*db.check() after the test found*"])


def test_wrong_counts_and_conflicts_that_nobody_meets_fail(pytester):
    result = run(
        pytester,
        """
    def test_counts(kv_db, kv_assert_calls):
        with kv_assert_calls(reads=3):
            kv_db[Thing].create(id=1)

    def test_conflict(kv_db, kv_conflict):
        kv_conflict(Thing, 1)

    def test_fault(kv_db, kv_fault):
        kv_fault("refuse")
        with pytest.raises(ValueError, match="does not exist"):
            kv_fault("loose_answer")
""",
    )
    result.assert_outcomes(passed=2, failed=1, errors=2)
    result.stdout.fnmatch_lines(
        ["*expected 3 reads and 1 commits*", "*no commit met the conflict*", "*no commit met the fault*"]
    )


@pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
def test_the_engine_is_an_option(pytester, engine):
    result = run(
        pytester,
        f"""
    def test_engine(kv_db, kv_url):
        assert kv_url.startswith("{engine}://")
        kv_db[Thing].create(id=1)
""",
        f"--kv-engine={engine}",
    )
    result.assert_outcomes(passed=1)


def test_models_come_from_the_settings_or_are_asked_for(pytester):
    pytester.makepyfile(test_inner="def test_open(kv_db): assert len(kv_db.models) == 1")
    missing = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:asyncio")
    missing.assert_outcomes(errors=1)
    missing.stdout.fnmatch_lines(["*define a fixture kv_models, or the setting kv_models*"])
    pytester.makeini("[pytest]\nkv_models = tests.kit.test_plugin:Person\n")
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:asyncio").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("guides/testing.md", "inprocess"),
        # Modules that a page loads first would be loaded twice in this process, with two classes of each name.
        pytest.param("web-service.md", "subprocess", marks=pytest.mark.servers),
    ],
)
def test_the_tests_on_the_page_pass(pytester, name, how):
    page = (REPOSITORY / "docs" / name).read_text("utf-8")
    code = "\n".join(block.text for block in blocks_of(page) if block.language == "python")
    pytester.makepyfile(test_page=code)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    run = pytester.runpytest_inprocess if how == "inprocess" else pytester.runpytest_subprocess
    result = run("-p", "no:cacheprovider")
    result.assert_outcomes(passed=code.count("def test_"))
