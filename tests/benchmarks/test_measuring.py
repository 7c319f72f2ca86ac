"""The memory of a process is its memory in use, without the free memory of its allocators."""

from __future__ import annotations

import pytest

from benchmarks import measuring
from benchmarks.measuring import kept_free, used_bytes

NUMBER = 20_000
SIZE = 240
"""A class of the allocator: 33 bytes of an object are not its content."""


def test_python_says_what_it_keeps_free():
    before = sum(kept_free())
    objects = [bytes(SIZE - 33) for _ in range(NUMBER)]
    every_other = objects[::2]
    among_them = kept_free()[0]
    del objects
    in_use = kept_free()
    assert 0.9 * NUMBER / 2 * SIZE <= in_use[0] - among_them <= 1.1 * NUMBER / 2 * SIZE
    del every_other
    assert sum(kept_free()) <= before + NUMBER * SIZE  # or it was given back


def test_what_is_kept_free_is_taken_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measuring, "resident_bytes", lambda: 1_000_000_000)
    monkeypatch.setattr(measuring, "kept_free", lambda: (1_000, 20_000))
    assert used_bytes() == 999_979_000


def test_an_allocator_that_says_nothing_keeps_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr("sys._debugmallocstats")
    assert kept_free() == (0, 0)
