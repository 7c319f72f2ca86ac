"""The error for a server that is not there names what was tried, why that failed, and never a password."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kvmodels.engines.postgres.settings import connection_string, shown_addresses
from kvmodels.engines.url import open_engine
from kvmodels.errors import EngineTimeoutError


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Yield a port that refuses connections, because its socket does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_refused_connection_to_postgresql_names_the_servers_that_were_tried(closed_port: int):
    with pytest.raises(EngineTimeoutError) as refused:
        open_engine(f"postgresql://app:s3cr3t@127.0.0.1:{closed_port},127.0.0.2:{closed_port}/shop", busy_timeout=0.05)
    assert refused.value.reason == "connection refused"
    assert f"Tried: 127.0.0.1:{closed_port}, 127.0.0.2:{closed_port}." in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_a_socket_of_postgresql_that_does_not_exist_is_named():
    with pytest.raises(EngineTimeoutError) as refused:
        open_engine("postgresql:///shop?host=/no/such/folder&password=s3cr3t", busy_timeout=0.05)
    assert refused.value.reason == "no socket"
    assert "Tried: /no/such/folder:5432." in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://app:secret@h1,h2:5433/shop", "h1:5432, h2:5433"),
        ("postgresql://app@h1,h2/shop?port=5433", "h1:5433, h2:5433"),
        ("postgresql:///shop", "the local socket:5432"),
        ("postgresql://app:sec@ret@host/shop", None),
        ("postgresql://app:5432/ret@host/shop", None),
        ("postgresql://app:sec/ret@host/shop", None),
        ("postgresql:///shop?service=shop", None),
    ],
)
def test_addresses_are_not_shown_if_a_password_may_have_been_misread(url: str, shown: str | None):
    assert shown_addresses(connection_string(url, readonly=False)) == shown


def test_a_refused_connection_to_a_server_of_kv_connect_is_named(closed_port: int):
    url = f"http://127.0.0.1:{closed_port}"
    with pytest.raises(EngineTimeoutError, match="Check the URL and whether the server is running") as refused:
        open_engine(url, access_token="s3cr3t", busy_timeout=0.05)
    assert url in str(refused.value)
    assert "s3cr3t" not in str(refused.value)
