"""``patch`` and ``remove`` with ``if_version``: only the version that the caller has seen is changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    StaleObjectError,
    Unique,
)
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.schedules import FaultRates


class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    slug: Unique[str]
    text: str = ""


class Stamped(KvModel, collection="stamped"):
    id: PrimaryKey[int]
    text: str = ""
    changed: str = ""

    def before_update(self, old: Stamped) -> None:
        self.changed = f"{old.text}>{self.text}"


@pytest.fixture(params=["memory://", "sqlite://:memory:"])
def db(request: pytest.FixtureRequest) -> Iterator[Database]:
    with Database(request.param, models=[Page, Stamped]) as database:
        yield database
        assert database.check().ok


def version(page: KvModel) -> str:
    assert page.versionstamp is not None
    return page.versionstamp


def test_a_patch_of_the_present_version_is_stored_and_of_an_older_one_refused(db: Database):
    pages = db[Page]
    first = version(pages.create(id=1, slug="a"))
    second = version(pages.patch(1, text="x", if_version=first))
    with pytest.raises(StaleObjectError) as caught:
        pages.patch(1, text="y", if_version=first)
    assert (caught.value.expected, caught.value.actual, caught.value.key) == (first, second, 1)
    assert pages.get(1).text == "x"
    assert pages.patch(1, slug="b", if_version=second.upper()).slug == "b", "digits are read in either case"


def test_one_of_several_versions_is_enough(db: Database):
    pages = db[Page]
    first = version(pages.create(id=1, slug="a"))
    other = version(pages.create(id=2, slug="b"))
    second = version(pages.patch(1, text="x", if_version=[other, first]))
    for write in (
        lambda: pages.patch(1, text="y", if_version=(first, other)),
        lambda: pages.remove(1, if_version={first}),
    ):
        with pytest.raises(StaleObjectError) as caught:
            write()
        assert (first in str(caught.value.expected), caught.value.actual) == (True, second)
    with pytest.raises(InvalidArgumentError, match="matches no version"):
        pages.remove(1, if_version=[])
    assert pages.remove(1, if_version=(second, first))


def test_a_removal_of_an_older_version_is_refused(db: Database):
    pages = db[Page]
    first = version(pages.create(id=1, slug="a"))
    second = version(pages.patch(1, text="x"))
    with pytest.raises(StaleObjectError, match="changed since"):
        pages.remove(1, if_version=first)
    assert pages.remove(1, if_version=second) is True


def test_an_absent_record_has_no_version(db: Database):
    gone = version(db[Page].create(id=1, slug="a"))
    db[Page].remove(1)
    for call in (lambda: db[Page].patch(1, text="x", if_version=gone), lambda: db[Page].remove(1, if_version=gone)):
        with pytest.raises(StaleObjectError, match="removed") as caught:
            call()
        assert caught.value.actual is None
    assert db[Page].remove(1) is False


def test_hooks_run_only_for_the_expected_version(db: Database):
    first = version(db[Stamped].create(id=1, text="a"))
    assert db[Stamped].patch(1, text="b", if_version=first).changed == "a>b"
    with pytest.raises(StaleObjectError):
        db[Stamped].patch(1, text="c", if_version=first)
    assert db[Stamped].get(1).changed == "a>b"


def test_in_a_transaction_the_version_is_that_of_its_snapshot_and_gone_once_it_wrote(db: Database):
    first = version(db[Page].create(id=1, slug="a"))
    with db.transaction() as tx:
        tx[Page].patch(1, text="x", if_version=first)
        with pytest.raises(StaleObjectError, match="written in this transaction"):
            tx[Page].patch(1, text="y", if_version=first)
        with pytest.raises(StaleObjectError, match="written in this transaction"):
            tx[Page].remove(1, if_version=first)
    assert db[Page].get(1).text == "x"
    with db.transaction() as tx:
        assert tx[Page].remove(1, if_version=version(db[Page].get(1)))
    assert not db[Page].all().exists()


@pytest.mark.parametrize("wrong", ["", "12", "z" * 20, 7, b"0" * 20, "0" * 21])
def test_what_is_not_a_versionstamp_is_refused_before_anything_is_read(db: Database, wrong: str):
    for call in (lambda: db[Page].patch(1, text="x", if_version=wrong), lambda: db[Page].remove(1, if_version=wrong)):
        with pytest.raises(InvalidArgumentError, match="not a versionstamp"):
            call()


def test_an_object_has_a_version_of_its_own(db: Database):
    page = db[Page].create(id=1, slug="a")
    with pytest.raises(InvalidArgumentError, match="a version of its own"):
        db[Page].remove(page, if_version=page.versionstamp)
    assert db[Page].remove(page)


async def test_the_same_with_coroutines():
    async with AsyncDatabase("memory://", models=[Page]) as db:
        first = version(await db[Page].create(id=1, slug="a"))
        second = version(await db[Page].patch(1, text="x", if_version=first))
        with pytest.raises(StaleObjectError):
            await db[Page].remove(1, if_version=first)
        assert await db[Page].remove(1, if_version=second)


def test_a_lost_answer_is_not_taken_for_another_version():
    for seed in range(30):
        test = Interleaving(seed, faults=FaultRates(lose_answer=0.3, lose_request=0.3))
        process = test.process(Page)
        first = test.at_once(process[Page].create(id=1, slug="a")).versionstamp
        test.add("ada", process[Page].patch(1, text="x", if_version=first))
        history = test.run()
        assert history.outcomes["ada"].error is None, f"{seed}\n{history}"
