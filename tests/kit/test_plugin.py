"""The fixtures of the pytest plugin, used as a program's tests use them; their failures in an inner run of pytest."""

from __future__ import annotations

from typing import Annotated

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    Encrypted,
    EngineError,
    Field,
    Indexed,
    KeyRing,
    KvModel,
    PrimaryKey,
    Unique,
)
from kvmodels.core.operations import ReadRange
from kvmodels.testing import Interleaving
from kvmodels.testing.factories import KvFactory
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


class Patient(KvModel, collection="patients"):
    id: PrimaryKey[int]
    name: Encrypted[str]
    insurance: Annotated[Encrypted[str], Unique()]


class TestEncryptedFields:
    @pytest.fixture
    def kv_models(self):
        return [Patient]

    @pytest.fixture
    def kv_keys(self):
        return KeyRing({1: bytes(32), 2: bytes(range(32))})

    def test_the_keys_of_the_fixture_open_the_values(self, kv_db, kv_url, kv_keys):
        kv_db[Patient].create(id=1, name="Ada", insurance="I-1")
        with Database(kv_url, models=[Patient], keys=kv_keys) as other:
            assert other[Patient].get(insurance="I-1").name == "Ada"
        assert kv_db.kv.get(("patients", 1)).value["name"].startswith(b"kve1")

    async def test_the_asynchronous_database_has_them_too(self, kv_async_db):
        async with kv_async_db as db:
            await db[Patient].create(id=1, name="Ada", insurance="I-1")
            assert (await db[Patient].get(1)).name == "Ada"

    def test_factories_make_encrypted_values(self, kv_db):
        class PatientFactory(KvFactory[Patient]):
            pass

        made = PatientFactory.create_batch(kv_db, 5)
        assert [kv_db[Patient].get(one.id) for one in made] == made


def test_a_race_has_keys_and_is_the_same_again():
    async def rename(db, name):
        await db[Patient].patch(1, name=name)

    def stored(seed):
        race = Interleaving(seed=seed)
        processes = [race.process(Patient, keys=KeyRing({1: bytes(32)})) for _ in range(2)]
        race.at_once(processes[0][Patient].create(id=1, name="Ada", insurance="I-1"))
        for name, process in zip("ab", processes, strict=True):
            race.add(name, rename(process, name))
        history = race.run()
        assert all(outcome.error is None for outcome in history.outcomes.values())
        assert race.at_once(processes[0].check()).ok
        return race.at_once(processes[1][Patient].get(1)), race.engine.read([ReadRange(b"", b"\xff")])

    assert stored(3) == stored(3)


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
