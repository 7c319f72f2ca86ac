"""Pages of keys: filtered in the store, full until the last."""

from __future__ import annotations

import pytest

from kvmodels.errors import InvalidArgumentError


@pytest.fixture
def filled(space):
    for number in range(25):
        space.set(f"user-{number:02}", number)
        space.set(f"channel-{number:02}", number)
    return space


def test_keys_come_in_order_and_in_pages(filled):
    everything = [f"channel-{n:02}" for n in range(25)] + [f"user-{n:02}" for n in range(25)]
    assert filled.list_keys() == everything
    assert filled.list_keys(per_page=20) == everything[:20]
    assert filled.list_keys(2, 20) == everything[40:]
    assert filled.list_keys(3, 20) == []


def test_M10_a_page_with_a_prefix_is_full_until_the_last(filled):
    pages = [filled.list_keys(page, 10, "user-") for page in range(4)]
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert [key for page in pages for key in page] == [f"user-{n:02}" for n in range(25)]


def test_M10_a_listing_with_a_cursor_skips_nothing_when_keys_go_meanwhile(filled):
    page = filled.kv.list((), start=("user-",), limit=10, keys_only=True)
    seen = [entry.key[0] for entry in page]
    for key in seen:
        filled.delete(key)
    seen += [e.key[0] for e in filled.kv.list((), start=("user-",), cursor=page.cursor, keys_only=True)]
    assert seen == [f"user-{n:02}" for n in range(25)]


def test_a_prefix_is_a_text_and_not_a_pattern(space):
    for key in ("a", "a%", "a%b", "ab", "a_", "\0", "a\0b", "ÿ"):
        space.set(key, 1)
    assert space.list_keys(prefix="a%") == ["a%", "a%b"]
    assert space.list_keys(prefix="a") == ["a", "a\0b", "a%", "a%b", "a_", "ab"]
    assert space.list_keys(prefix="\0") == ["\0"]
    assert space.list_keys(prefix="a\0") == ["a\0b"]
    assert space.list_keys(prefix="ÿ") == ["ÿ"]
    assert space.list_keys(prefix="z") == []


def test_keys_of_several_parts_are_not_listed_and_do_not_shorten_a_page(space):
    for number in range(40):
        space.kv.set(("a", number), number)
    space.kv.set((1,), "no text")
    space.namespace("b").set("x", 1)
    for key in ("a", "a\0", "b", "c"):
        space.set(key, 1)
    assert space.list_keys(0, 3) == ["a", "a\0", "b"]
    assert space.list_keys(1, 3) == ["c"]


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ((-1,), "page"),
        ((True,), "page"),
        ((0, 0), "per_page"),
        ((0, 1.5), "per_page"),
        ((0, 10, None), "prefix"),
        ((0, 10, "\ud800"), "prefix"),
    ],
)
def test_a_wrong_argument_is_named(space, arguments, argument):
    with pytest.raises(InvalidArgumentError) as caught:
        space.list_keys(*arguments)
    assert caught.value.argument == argument


def test_more_keys_than_one_commit_may_hold_are_removed(space):
    for start in range(0, 2500, 500):
        operation = space.kv.atomic()
        for number in range(start, start + 500):
            operation.set((f"{number}",), number)
        operation.commit()
    assert space.delete_all() == 2500
    assert space.list_keys() == []
