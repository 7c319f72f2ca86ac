"""Each rule of concurrency has a schedule that is harmless with it, and that the judges condemn without it."""

from __future__ import annotations

import pytest

from tests.interleaving.mutants import BY_NAME
from tests.interleaving.scenes import SCENES, Scene
from tests.interleaving.scenes_of_bookings import BOOKING_SCENES
from tests.interleaving.scenes_of_bulk import BULK_SCENES
from tests.interleaving.scenes_of_hooks import HOOK_SCENES
from tests.interleaving.scenes_of_kinds import KIND_SCENES
from tests.interleaving.scenes_of_late_references import LATE_REFERENCE_SCENES
from tests.interleaving.scenes_of_references import REFERENCE_SCENES
from tests.interleaving.scenes_of_transactions import TRANSACTION_SCENES

ALL = (
    *SCENES,
    *KIND_SCENES,
    *BOOKING_SCENES,
    *TRANSACTION_SCENES,
    *BULK_SCENES,
    *HOOK_SCENES,
    *REFERENCE_SCENES,
    *LATE_REFERENCE_SCENES,
)

FEWER_REQUESTS = frozenset(
    {
        "a_booking_is_cancelled_before_the_build_commits",
        "a_booking_moves_before_the_build_commits",
        "a_build_claims_a_badge_that_a_writer_found_free",
        "a_build_claims_the_slot_that_a_writer_found_free",
        "a_poem_gets_a_title_beside_the_removal_of_its_poet",
        "a_poet_is_removed_beside_the_build",
        "a_poet_is_removed_while_a_listed_poem_is_resolved",
    }
)
"""Scenes whose schedules have requests that only the fast kinds make, or fewer of them."""

SCHEDULED = [
    pytest.param(
        scene,
        id=f"{scene.mutant}-{scene.name}",
        marks=[pytest.mark.fast_kinds] if scene.name in FEWER_REQUESTS else [],
    )
    for scene in ALL
]


def test_every_mutant_has_a_schedule():
    assert {scene.mutant for scene in ALL} == set(BY_NAME)


@pytest.mark.parametrize("scene", SCHEDULED)
def test_the_schedule_is_harmless(scene: Scene):
    faults, history = scene.faults()
    assert not faults, f"{faults}\n{history}"


@pytest.mark.parametrize("scene", SCHEDULED)
def test_the_schedule_convicts_the_mutant(scene: Scene, monkeypatch):
    mutant = BY_NAME[scene.mutant]
    mutant.apply(monkeypatch)
    faults, history = scene.faults()
    print(f"{mutant.name} ({mutant.lost}) in {scene.name}: {faults}")
    assert faults, str(history)
