"""Fixtures: the same small store on every engine.

What a check says depends on rows alone, and the contract suite sees that engines give the same rows. So `make test`
looks at each damage in memory, `make test-servers` at some of them in files, and the soak at all on every engine.
"""

from __future__ import annotations

import pytest

from tests.damage.stores import open_house, open_zoo
from tests.worlds import MEMORY
from tests.zoo_kinds import Guest


@pytest.fixture(params=MEMORY)
def zoo(request, url_of):
    opened = open_zoo(url_of(request.param))
    yield opened
    opened.db.close()


@pytest.fixture(params=MEMORY)
def house(request, url_of):
    """Residents: every newer kind of index."""
    opened = open_house(url_of(request.param))
    yield opened
    opened.db.close()


@pytest.fixture(params=MEMORY)
def guests(request, url_of):
    """Guests: without counters, so that records may have deadlines."""
    opened = open_house(url_of(request.param), Guest)
    yield opened
    opened.db.close()
