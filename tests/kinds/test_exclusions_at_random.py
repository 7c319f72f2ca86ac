"""Every way to write refuses exactly what overlaps by comparing all bookings, with every engine."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kvmodels import Database
from tests.kinds.exclusions import Booking, Driver

STEPS = {None: 250, "connect": 30, "connect-own": 30}
OTHERS = 80
SEED = 20261130


def drive(url: str, seed: int, steps: int) -> Driver:
    """Make random writes to a store, and compare it with the calendar."""
    print(f"seed {seed}")
    with Database(url, models=[Booking]) as db:
        driver = Driver(db, Random(seed))
        for number in range(steps):
            driver.step()
            if number % 10 == 0:
                driver.require_equal()
        driver.require_equal()
        assert db.check().ok
    return driver


@pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
def test_every_write_is_refused_exactly_if_it_overlaps(engine: str, quick_folder: Path, request: pytest.FixtureRequest):
    url = "memory://" if engine == "memory" else f"{engine}:///{quick_folder}/bookings"
    server = request.node.callspec.params.get("_server_stores")
    steps = STEPS.get(server, OTHERS) if engine == "memory" else OTHERS
    driver = drive(url, SEED, steps)
    assert min(driver.refused, driver.done) > steps / 8


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_a_hundred_long_calendars(seed: int):
    drive("memory://", seed, 1_000)
