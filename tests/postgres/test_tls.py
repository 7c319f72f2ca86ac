"""Encrypted connections to PostgreSQL 15 with a certificate of an authority of the test."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.errors import EngineError, KvModelsError
from tests.contract.shorthand import EVERYTHING, commit, keys, put
from tests.postgres.server import PostgresServer, own_server

pytestmark = pytest.mark.servers


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certified(folder: Path, name: str) -> None:
    """Make an authority, and a certificate of the server for a name."""
    for who in ("root", "other"):
        openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={who}",
                "-keyout", f"{who}.key", "-out", f"{who}.crt")  # fmt: skip
    openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
            "-keyout", "server.key", "-out", "server.csr")  # fmt: skip
    (folder / "names").write_text(f"subjectAltName=DNS:{name}\n")
    openssl(folder, "x509", "-req", "-in", "server.csr", "-CA", "root.crt", "-CAkey", "root.key", "-CAcreateserial",
            "-days", "2", "-extfile", "names", "-out", "server.crt")  # fmt: skip


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, int, Path]]:
    """A server that takes nothing but TLS on a port of the loopback, its port, and the folder of certificates."""
    folder = tmp_path_factory.mktemp("certificates")
    certified(folder, "localhost")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with own_server(start=False) as server:
        for name in ("server.crt", "server.key"):
            copied = server.folder / name
            copied.write_bytes((folder / name).read_bytes())
            copied.chmod(0o600)
            if server.user:
                os.chown(copied, server.folder.stat().st_uid, -1)
        hba = server.data / "pg_hba.conf"
        hba.write_text("local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n")
        server.settings |= {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "ssl": "on",
            "ssl_cert_file": str(server.folder / "server.crt"),
            "ssl_key_file": str(server.folder / "server.key"),
        }
        server.start(server.users)
        server.run(
            server.program("psql"), "-q", "-h", str(server.folder), "-p", str(port), "-U", "postgres", "-c",
            "ALTER ROLE postgres PASSWORD 's3cr3t'",
        )  # fmt: skip
        yield server, port, folder


def secret_url(port: int, host: str, **parameters: str) -> str:
    more = "".join(f"&{name}={value}" for name, value in parameters.items())
    return f"postgresql://postgres:s3cr3t@{host}:{port}/postgres?connect_timeout=10{more}"


def test_a_certificate_that_is_right_lets_the_store_open(encrypted: tuple[PostgresServer, int, Path]):
    _, port, folder = encrypted
    url = secret_url(port, "localhost", sslmode="verify-full", sslrootcert=str(folder / "root.crt"))
    engine = PostgresEngine(url)
    commit(engine, put(b"k"))
    assert keys(engine, EVERYTHING) == [b"k"]
    assert "s3cr3t" not in engine.url
    engine.close()


@pytest.mark.parametrize(
    ("host", "root", "mode"),
    [
        ("127.0.0.1", "root.crt", "verify-full"),  # the certificate is of another name
        ("localhost", "other.crt", "verify-full"),  # of another authority
        ("localhost", "other.crt", "verify-ca"),
        ("localhost", "root.crt", "disable"),  # the server takes nothing but TLS
    ],
)
def test_whatever_is_wrong_is_refused_without_a_secret(
    encrypted: tuple[PostgresServer, int, Path], host: str, root: str, mode: str
):
    _, port, folder = encrypted
    with pytest.raises(KvModelsError) as caught:
        PostgresEngine(secret_url(port, host, sslmode=mode, sslrootcert=str(folder / root)), busy_timeout=5)
    assert isinstance(caught.value, EngineError)
    assert "s3cr3t" not in str(caught.value) + repr(caught.value.data)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_wrong_password_is_refused_and_not_shown(encrypted: tuple[PostgresServer, int, Path]):
    _, port, folder = encrypted
    url = secret_url(port, "localhost", sslmode="verify-full", sslrootcert=str(folder / "root.crt"))
    with pytest.raises(EngineError, match="password") as caught:
        PostgresEngine(url.replace("s3cr3t", "wr0ng"), busy_timeout=5)
    assert "wr0ng" not in str(caught.value) + repr(caught.value.data)
