"""How a process chooses between strict and early commits, by a clock that the test has."""

from __future__ import annotations

from kvmodels.engines.postgres.modes import BESIDE_S, FAST_S, PROBES, WORTH_US, WriterMode


class Time:
    now = 100.0


def mode() -> WriterMode:
    one = WriterMode(lambda: Time.now)
    one.usable = True
    return one


def test_a_process_that_writes_alone_commits_strictly():
    one = mode()
    for version in range(5, 9):
        one.answered(version - 1, version)
        assert not one.early


def test_a_commit_of_another_process_makes_the_next_ones_early_for_a_second():
    one = mode()
    one.answered(4, 5)
    one.answered(6, 7)
    assert one.early
    Time.now += BESIDE_S
    assert not one.early


def test_a_server_that_refuses_early_commits_is_not_asked_again_for_a_second():
    one = mode()
    one.answered(4, 5)
    one.answered(6, 7)
    one.refused()
    assert not one.early
    Time.now += BESIDE_S / 2
    one.answered(8, 9)
    assert not one.early
    Time.now += BESIDE_S / 2
    assert one.early


def test_a_store_without_early_commits_has_none():
    one = WriterMode(lambda: Time.now)
    one.answered(4, 5)
    one.answered(6, 7)
    assert not one.early


def beside_another() -> WriterMode:
    one = mode()
    one.answered(4, 5)
    one.answered(6, 7)
    return one


def test_a_flush_that_is_not_worth_sharing_ends_early_commits_for_some_seconds():
    one = beside_another()
    for flush_us in [10 * WORTH_US] * (PROBES - 1) + [WORTH_US - 1]:
        assert one.early
        one.sealed(flush_us)
    assert not one.early
    Time.now += FAST_S
    one.answered(8, 9)
    assert one.early


def test_seals_that_only_sometimes_wait_longer_do_not_hide_a_slow_disk():
    one = beside_another()
    for _ in range(5 * PROBES):
        one.sealed(WORTH_US)
        assert one.early


def test_a_disk_that_has_become_fast_is_noticed():
    one = beside_another()
    for flush_us in [WORTH_US] * PROBES + [1] * PROBES:
        assert one.early
        one.sealed(flush_us)
    assert not one.early
