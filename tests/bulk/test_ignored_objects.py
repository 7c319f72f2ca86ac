"""``bulk_create(on_conflict="ignore")``: an object that is left out takes no valid one with it."""

from __future__ import annotations

import itertools

import pytest

from kvmodels import (
    AlreadyExistsError,
    Database,
    Field,
    ForeignKey,
    KvModel,
    PrimaryKey,
    ReferenceViolationError,
    Unique,
)


class Target(KvModel, collection="targets"):
    id: PrimaryKey[int]


class Link(KvModel, collection="links"):
    id: PrimaryKey[int]
    target: ForeignKey[int, Target]
    token: Unique[str | None] = Field(default=None)


@pytest.fixture
def db():
    with Database("memory://", models=[Target, Link]) as db:
        db[Target].create(id=1)
        yield db
        assert db.check().ok


@pytest.mark.parametrize("batch_size", [None, 1, 2])
@pytest.mark.parametrize("targets", list(itertools.product([1, 99], repeat=3)))
def test_the_first_valid_object_of_a_key_is_stored(db, targets: tuple[int, ...], batch_size: int | None):
    result = list(
        db[Link].bulk_create([Link(id=5, target=t) for t in targets], on_conflict="ignore", batch_size=batch_size)
    )
    first = targets.index(1) if 1 in targets else None
    assert [item.created for item in result] == [place == first for place in range(3)]
    for place, (item, target) in enumerate(zip(result, targets, strict=True)):
        if place == first:
            continue
        expected = ReferenceViolationError if first is None or place < first else AlreadyExistsError
        assert isinstance(item.error, (expected, ReferenceViolationError) if target == 99 else expected)
        assert item.error.position == place
    assert len({id(item.error) for item in result if item.error}) == len(targets) - (first is not None)


def test_a_unique_value_of_an_ignored_object_is_free(db):
    links = [Link(id=1, target=99, token="a"), Link(id=2, target=1, token="a"), Link(id=3, target=1, token="a")]
    result = list(db[Link].bulk_create(links, on_conflict="ignore"))
    assert [item.created for item in result] == [False, True, False]
