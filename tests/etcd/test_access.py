"""TLS, certificates, users and rights: who may use a store, and what others are told."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from kvmodels import AsyncDatabase, KvModel, PrimaryKey, open_kv
from kvmodels.errors import EngineError, ReadOnlyError
from tests.etcd.server import EtcdCluster, EtcdNode, Tls, own_cluster

pytestmark = pytest.mark.servers

PASSWORD = "pass:w0rd@/x"
ROLES = {"ada": "readwrite", "eve": "read", "nix": None}


class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]


class Certificates:
    """Files of two authorities, a server and clients."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.other_ca = folder / "other.pem"
        self._authority.cert_pem.write_to_path(str(self.ca))
        trustme.CA().cert_pem.write_to_path(str(self.other_ca))

    def issue(self, name: str, **options: Any) -> tuple[Path, Path]:
        """The certificate of a name, and its key."""
        made = self._authority.issue_cert("127.0.0.1", **options)
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(key))
        return certificate, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(certificates: Certificates) -> Iterator[EtcdNode]:
    """A node that takes TLS with client certificates only."""
    server, client = certificates.issue("server"), certificates.issue("client")
    with own_cluster(1, durable=False, tls=Tls(certificates.ca, *server, *client)) as cluster:
        yield cluster.nodes[0]


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdCluster]:
    """A node with users."""
    with own_cluster(1, durable=False) as cluster:
        node = cluster.nodes[0]
        for user, kind in ROLES.items():
            node.ctl("user", "add", f"{user}:{PASSWORD}")
            if kind is not None:
                node.ctl("role", "add", user)
                node.ctl("user", "grant-role", user, user)
                node.ctl("role", "grant-permission", "--prefix", user, kind, "/app/")
        node.ctl("user", "add", "root:root")
        node.ctl("user", "grant-role", "root", "root")
        node.ctl("auth", "enable")
        yield cluster


async def test_a_client_with_a_certificate_is_served_over_tls(encrypted, certificates, monkeypatch):
    certificate, key = certificates.issue("reader")
    files = {"cacert": certificates.ca, "cert": certificate, "key": key}
    with open_kv(encrypted.url("app"), **files) as kv:
        kv.set(("k",), 1)
    for name, path in files.items():
        monkeypatch.setenv(f"ETCDCTL_{name.upper()}", str(path))
    monkeypatch.setenv("ETCDCTL_ENDPOINTS", f"https://{encrypted.endpoint}")
    async with AsyncDatabase("etcd:///app", models=[Page]) as db:
        await db[Page].create(id=1)
        assert await db[Page].get(1) == Page(id=1)


def test_certificates_that_are_not_trusted_are_a_clear_error_at_once(encrypted, certificates):
    past = datetime.now(UTC) - timedelta(days=1)
    client, expired = certificates.issue("other"), certificates.issue("expired", not_after=past)
    for authority, pair in (
        (None, client),
        (certificates.other_ca, client),
        (certificates.ca, (None, None)),
        (certificates.ca, expired),
    ):
        with pytest.raises(EngineError, match="encrypted connection") as caught:
            open_kv(encrypted.url("app"), cacert=authority, cert=pair[0], key=pair[1])
        assert "cacert=" in str(caught.value.hint)


def test_the_expired_certificate_of_a_server_is_a_clear_error(certificates):
    past = datetime.now(UTC) - timedelta(days=1)
    server, client = certificates.issue("old", not_after=past), certificates.issue("client of old")
    with own_cluster(1, durable=False, start=False, tls=Tls(certificates.ca, *server, *client)) as cluster:
        cluster.nodes[0].launch(cluster.users)
        with pytest.raises(EngineError, match="encrypted connection"):  # until it listens, it is asked again
            open_kv(cluster.url("app"), cacert=certificates.ca, cert=client[0], key=client[1], busy_timeout=30)


def test_an_endpoint_without_encryption_is_not_sent_a_password(guarded, certificates):
    url = guarded.url("app").replace("etcd://", "etcds://")
    with pytest.raises(EngineError, match="encrypted connection") as caught:
        open_kv(url, cacert=certificates.ca, user="ada", password=PASSWORD)
    assert "without TLS, begin the URL with etcd://" in str(caught.value.hint)


def test_users_have_the_rights_of_their_roles(guarded):
    with open_kv(guarded.url("app"), user="ada", password=PASSWORD) as kv:
        kv.set(("k",), 1)
    with open_kv(guarded.url("app"), user="eve", password=PASSWORD, readonly=True) as kv:
        assert kv.get(("k",)).value == 1
    with open_kv(guarded.url("app"), user="eve", password=PASSWORD) as kv, pytest.raises(ReadOnlyError) as caught:
        kv.set(("k",), 2)
    assert "readwrite /app/." in str(caught.value.hint)
    with pytest.raises(EngineError, match="may not read") as caught_reading:
        open_kv(guarded.url("app"), user="nix", password=PASSWORD)
    assert "readwrite /app/. With readonly=True, read is enough" in str(caught_reading.value.hint)
    with pytest.raises(EngineError, match="may not read"):
        open_kv(guarded.url("application"), user="ada", password=PASSWORD)


@pytest.mark.parametrize(
    "credentials", [{}, {"user": "ada", "password": "wr0ng"}, {"user": "who", "password": "wr0ng"}]
)
def test_a_wrong_password_is_a_clear_error_without_it(guarded, credentials):
    with pytest.raises(EngineError, match="refuses the credentials") as caught:
        open_kv(guarded.url("app"), **credentials)
    assert "wr0ng" not in str(caught.value)
    assert "wr0ng" not in repr(caught.value.__cause__)


def test_a_token_that_has_ended_is_renewed(guarded):
    with open_kv(guarded.url("app"), user="ada", password=PASSWORD) as kv:
        kv.set(("k",), 1)
        node = guarded.nodes[0]
        node.kill()
        guarded.restart(node)  # it has forgotten all tokens
        kv.set(("k",), 2)
        assert kv.get(("k",)).value == 2
