"""Etcd that refuses, forgets or does not answer: typed errors, and nothing half applied. On etcd 3.4.23."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from kvmodels import Database
from kvmodels.core.operations import (
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    ReadRange,
    ReadResult,
    Set,
)
from kvmodels.engines.etcd.engine import EtcdEngine
from kvmodels.engines.etcd.protocol.exchange import CallFailedError, EtcdCall
from kvmodels.engines.etcd.protocol.transport import EtcdThreadTransport
from kvmodels.errors import (
    CommitUnknownError,
    EngineError,
    EngineTimeoutError,
    OperationTooLargeError,
    ReadOnlyError,
    SnapshotExpiredError,
    StorageFullError,
    UnsupportedError,
)
from tests.contract.shorthand import EVERYTHING, commit, counter, get, keys, number, put
from tests.crowd import Order, until
from tests.etcd.proxy import TcpProxy, proxy_of
from tests.etcd.server import EtcdCluster, EtcdNode, Tls, free_port, own_cluster, restored
from tests.kept_process import new_folder

pytestmark = pytest.mark.servers

PASSWORD = "s3cr3t"
QUOTA = 16 * 1024 * 1024
ALL = ReadRange(b"\0", b"\xff")


@pytest.fixture
def cluster() -> Iterator[EtcdCluster]:
    with own_cluster() as one:
        yield one


# Lost answers


@pytest.fixture
def proxy(etcd34_server: EtcdNode) -> Iterator[TcpProxy]:
    with proxy_of(etcd34_server.port) as one:
        yield one


def once(fault: str, mark: bytes) -> Callable[[bytes], str | None]:
    """Do this to the first request with a mark in it."""
    left = [fault]
    return lambda data: left.pop() if left and mark in data else None


@pytest.mark.parametrize(("fault", "applied"), [("lose_answer", True), ("lose_request", False)])
def test_a_commit_whose_connection_breaks_is_of_unknown_outcome_and_not_repeated(
    proxy: TcpProxy, fault: str, applied: bool
):
    engine = EtcdEngine(f"etcd://{proxy.endpoint}/lost/{fault}")
    commit(engine, counter(b"n", 1))
    proxy.plan = once(fault, b"a value to look for")
    with pytest.raises(CommitUnknownError):
        engine.commit(AtomicWrite((), (Set(b"m", b"a value to look for", 2), Arithmetic("sum", b"n", 1))))
    assert proxy.lost == [fault]
    assert number(engine, b"n") == 1 + applied
    assert (get(engine, b"m") is not None) == applied
    engine.close()


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request"])
def test_a_record_is_created_once_whatever_is_lost(proxy: TcpProxy, fault: str):
    """The flow finds out by its token what became of the commit."""
    with Database(f"etcd://{proxy.endpoint}/created/{fault}", models=[Order]) as db:
        db[Order].create(id="first", number="first", writer=1)
        proxy.plan = once(fault, b"looked for")
        db[Order].create(id="second", number="looked for", writer=1)
        assert proxy.lost == [fault]
        assert [order.id for order in db[Order].all()] == ["first", "second"]
        assert db.check().ok


def test_a_read_whose_answer_is_lost_is_repeated(proxy: TcpProxy):
    engine = EtcdEngine(f"etcd://{proxy.endpoint}/reads")
    commit(engine, put(b"k"))
    proxy.plan = once("lose_answer", b"a key to look for")
    assert keys(engine, ReadRange(b"a key to look for", b"z")) == [b"k"]
    assert proxy.lost == ["lose_answer"]
    engine.close()


# Compaction


def test_a_snapshot_whose_revision_is_compacted_has_expired(cluster: EtcdCluster):
    engine = EtcdEngine(cluster.url("app"))
    commit(engine, put(b"k", b"1"))
    snapshot = engine.snapshot()
    commit(engine, put(b"k", b"2"))
    compact(cluster.nodes[0])
    with pytest.raises(SnapshotExpiredError):
        snapshot.read([EVERYTHING])
    assert get(engine, b"k").value == b"2"  # type: ignore[union-attr]
    engine.close()


def test_a_long_read_during_which_the_cluster_is_compacted_begins_again(cluster: EtcdCluster):
    node = cluster.nodes[0]
    with proxy_of(node.port) as proxy:
        engine = EtcdEngine(f"etcd://{proxy.endpoint}/app", busy_timeout=60)
        writer = EtcdEngine(cluster.url("app"))
        for first in range(0, 2_400, 60):
            commit(engine, *(put(b"k%04d" % at, bytes(3_000)) for at in range(first, first + 60)))
        compacted: list[str] = []

        def plan(data: bytes) -> None:
            if b"/app/\x02k0999" in data and not compacted:  # the request for the second page
                commit(writer, put(b"k9999", b"last"))
                compact(node)
                compacted.append("compacted")

        proxy.plan = plan
        found = engine.read([ReadRange(b"k", b"l")])
        assert isinstance(found, ReadResult)
        assert compacted
        assert [row.key for row in found.ranges[0]][-1] == b"k9999"
        assert len(found.ranges[0]) == 2_401
        writer.close()
        engine.close()


def compact(node: EtcdNode) -> None:
    node.ctl("compact", str(node.status().revision))


# Full, half down, learners


def test_a_full_quota_refuses_writes_and_keeps_what_is_there():
    """The commit that exceeds the quota may have been applied; those after it are certainly refused."""
    with own_cluster(quota_backend_bytes=str(QUOTA)) as cluster:
        node = cluster.nodes[0]
        engine = EtcdEngine(cluster.url("app"))
        written, unknown = list[bytes](), list[bytes]()
        with pytest.raises(StorageFullError) as caught:
            for at in range(100):
                key = b"k%02d" % at
                try:
                    commit(engine, put(key, bytes(1_000_000)))
                except CommitUnknownError:
                    unknown.append(key)
                else:
                    written.append(key)
        assert "compact" in str(caught.value).lower()
        stored = set(keys(engine, ALL))
        assert set(written) <= stored <= {*written, *unknown}
        with pytest.raises(StorageFullError):
            commit(engine, put(b"small"))
        assert set(keys(engine, ALL)) == stored
        compact(node)
        node.ctl("defrag")
        node.ctl("alarm", "disarm")
        engine.close()


def test_a_full_store_is_read_swept_and_freed_by_deletes_alone_and_takes_writes_after_the_operator_has_made_room():
    with own_cluster(quota_backend_bytes=str(QUOTA)) as cluster:
        node, now = cluster.nodes[0], [1_000_000]
        engine = EtcdEngine(cluster.url("app"), clock=lambda: now[0], busy_timeout=60)
        with pytest.raises((StorageFullError, CommitUnknownError)):
            for at in range(100):
                rows = (Set(b"k%02d" % at, bytes(1_000_000), 2, now[0] + 1), Set(b"stays%02d" % at, b"", 2))
                engine.commit(AtomicWrite((), rows))
        until(lambda: "NOSPACE" in node.ctl("alarm", "list"))
        now[0] += 10
        with pytest.raises(StorageFullError):
            commit(engine, put(b"small"))
        assert engine.sweep(1_000) >= 10
        assert isinstance(engine.commit(AtomicWrite((Check(b"absent", None),), (Delete(b"stays00"),))), Committed)
        assert keys(engine, ALL)[0] == b"stays01"
        compact(node)
        node.ctl("defrag")
        node.ctl("alarm", "disarm")
        commit(engine, put(b"small"))
        engine.close()


@pytest.mark.parametrize(("applied", "error"), [(True, CommitUnknownError), (False, StorageFullError)])
def test_a_server_may_say_that_its_space_is_exceeded_after_it_has_applied_a_commit(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch, applied: bool, error: type[EngineError]
):
    engine = EtcdEngine(cluster.url("app"))
    commit(engine, put(b"k", b"1"))
    answer = EtcdThreadTransport._answer

    def exceeded(transport: EtcdThreadTransport, step: Any) -> Any:
        if not (isinstance(step, EtcdCall) and b"the last one" in step.request.SerializeToString()):
            return answer(transport, step)
        if applied:
            answer(transport, step)
        raise CallFailedError("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")

    monkeypatch.setattr(EtcdThreadTransport, "_answer", exceeded)
    with pytest.raises(error):
        commit(engine, put(b"k", b"the last one"))
    assert get(engine, b"k").value == (b"the last one" if applied else b"1")  # type: ignore[union-attr]
    engine.close()


def test_an_operation_larger_than_a_request_is_refused_before_it_is_sent(cluster: EtcdCluster):
    engine = EtcdEngine(cluster.url("app"))
    with pytest.raises(OperationTooLargeError) as caught:
        commit(engine, put(b"a", bytes(900_000)), put(b"b", bytes(900_000)))
    assert caught.value.limits == "ETCD"
    assert keys(engine, ALL) == []
    engine.close()


def test_one_of_three_nodes_is_enough_to_find_the_others_and_two_are_enough_to_write():
    with own_cluster(3) as cluster:
        cluster.nodes[0].kill()
        engine = EtcdEngine(cluster.url("app"), busy_timeout=30)
        commit(engine, put(b"k"))
        cluster.nodes[1].kill()
        engine.close()
        with pytest.raises(EngineTimeoutError):
            EtcdEngine(cluster.url("app"), busy_timeout=2)
        cluster.restart(cluster.nodes[0])
        again = EtcdEngine(cluster.url("app"), busy_timeout=30)
        assert keys(again, ALL) == [b"k"]
        again.close()


def test_a_learner_is_passed_over(cluster: EtcdCluster):
    [node] = cluster.nodes
    learner = EtcdNode(new_folder(), name="learner")
    learner.make()
    node.ctl("member", "add", "learner", "--learner", f"--peer-urls={learner.peer_url}")
    learner.launch(cluster.users, [*cluster.peers, f"learner={learner.peer_url}"], "existing")
    try:
        until(lambda: "learner" in node.ctl("member", "list") and _listens(learner))
        engine = EtcdEngine(f"etcd://{learner.endpoint},{node.endpoint}/app", busy_timeout=30)
        commit(engine, put(b"k"))
        assert keys(engine, ALL) == [b"k"]
        engine.close()
        with pytest.raises(EngineTimeoutError):
            EtcdEngine(f"etcd://{learner.endpoint}/app", busy_timeout=1)
    finally:
        learner.kill()


def _listens(node: EtcdNode) -> bool:
    try:
        return bool(node.status().version)
    except (OSError, KeyError, ValueError):
        return False


# Restore, releases


def test_a_restored_cluster_refuses_writes_until_it_is_accepted(cluster: EtcdCluster, tmp_path: Path):
    engine = EtcdEngine(cluster.url("app"))
    first = commit(engine, put(b"k", b"saved"))
    snapshot = tmp_path / "snapshot.db"
    cluster.nodes[0].ctl("snapshot", "save", str(snapshot))
    later = commit(engine, put(b"k", b"lost"))
    engine.close()
    with own_cluster(start=False) as other:
        [node] = other.nodes
        restored(cluster.nodes[0], snapshot, node, "--initial-cluster-token=restored")
        other.start()
        with pytest.raises(EngineError, match="accept_restore"):
            EtcdEngine(other.url("app"))
        reader = EtcdEngine(other.url("app"), readonly=True)
        assert get(reader, b"k").value == b"saved"  # type: ignore[union-attr]
        reader.close()
        accepted = EtcdEngine(other.url("app"), accept_restore=True)
        assert accepted.commit(AtomicWrite((Check(b"k", first),), (Set(b"k", b"stale", 2),))) == Conflict((0,))
        assert commit(accepted, put(b"k", b"new")) > later
        accepted.close()
        again = EtcdEngine(other.url("app"))
        assert get(again, b"k").value == b"new"  # type: ignore[union-attr]
        again.close()


@pytest.mark.parametrize("reads_first", [True, False])
def test_a_living_program_refuses_to_write_to_a_cluster_that_was_put_back_under_the_same_id(
    cluster: EtcdCluster, tmp_path: Path, reads_first: bool
):
    [node] = cluster.nodes
    engine = EtcdEngine(cluster.url("app"), busy_timeout=60)
    commit(engine, put(b"k", b"saved"))
    snapshot = tmp_path / "snapshot.db"
    node.ctl("snapshot", "save", str(snapshot))
    for _ in range(5):
        commit(engine, put(b"k", b"lost"))
    cluster.kill()
    shutil.rmtree(node.data)
    restored(node, snapshot, node)
    cluster.start()
    if reads_first:
        assert get(engine, b"k").value == b"saved"  # type: ignore[union-attr]
    else:
        with pytest.raises(CommitUnknownError):
            commit(engine, put(b"l"))
    with pytest.raises(EngineError, match="lost commits") as caught:
        commit(engine, put(b"l"))
    assert "accept_restore=True" in str(caught.value.hint)
    engine.close()


def test_a_release_that_loses_commits_is_refused_without_the_option(etcd_server: EtcdNode):
    with pytest.raises(UnsupportedError, match="13766"):
        EtcdEngine(etcd_server.url("lossy"))
    EtcdEngine(etcd_server.url("lossy"), allow_lossy_server=True).close()


# Certificates and users


def files_of(authority: trustme.CA, folder: Path, *, expired: bool = False) -> Tls:
    """Files of a server and of a client, which may be too old."""
    end = datetime.now(UTC) - timedelta(days=1) if expired else None
    start = datetime.now(UTC) - timedelta(days=9) if expired else None
    folder.mkdir()
    paths = {name: folder / f"{name}.pem" for name in ("ca", "server", "server_key", "client", "client_key")}
    authority.cert_pem.write_to_path(paths["ca"])
    server = authority.issue_cert("127.0.0.1", "localhost")
    client = authority.issue_cert("client", common_name="client", not_before=start, not_after=end)
    server.cert_chain_pems[0].write_to_path(paths["server"])
    server.private_key_pem.write_to_path(paths["server_key"])
    client.cert_chain_pems[0].write_to_path(paths["client"])
    client.private_key_pem.write_to_path(paths["client_key"])
    return Tls(*paths.values())


def test_only_a_valid_certificate_of_a_client_is_accepted(tmp_path: Path):
    authority = trustme.CA()
    valid, expired = (files_of(authority, tmp_path / "valid"), files_of(authority, tmp_path / "expired", expired=True))
    foreign = files_of(trustme.CA(), tmp_path / "foreign")
    with own_cluster(tls=valid) as cluster:
        given: dict[str, Any] = {"cacert": valid.ca, "cert": valid.client_certificate, "key": valid.client_key}
        engine = EtcdEngine(cluster.url("app"), **given)
        commit(engine, put(b"k"))
        faults: list[dict[str, Any]] = [
            {"cert": expired.client_certificate, "key": expired.client_key},
            {"cert": foreign.client_certificate, "key": foreign.client_key},
            {"cacert": foreign.ca},
            {"cert": None, "key": None},
        ]
        for wrong in faults:
            with pytest.raises(EngineError):
                EtcdEngine(cluster.url("app"), **{**given, **wrong}, busy_timeout=3)
        assert keys(engine, ALL) == [b"k"]
        engine.close()


def test_users_passwords_and_roles(cluster: EtcdCluster):
    node = cluster.nodes[0]
    EtcdEngine(cluster.url("app")).close()
    for arguments in (
        ("user", "add", f"root:{PASSWORD}"),
        ("user", "grant-role", "root", "root"),
        ("user", "add", f"reader:{PASSWORD}"),
        ("role", "add", "reading"),
        ("role", "grant-permission", "--prefix=true", "reading", "read", "/app"),
        ("user", "grant-role", "reader", "reading"),
        ("auth", "enable"),
    ):
        node.ctl(*arguments)
    engine = EtcdEngine(cluster.url("app"), user="root", password=PASSWORD)
    commit(engine, put(b"k"))
    reader = EtcdEngine(cluster.url("app"), user="reader", password=PASSWORD, readonly=True)
    assert keys(reader, ALL) == [b"k"]
    reader.close()
    writer = EtcdEngine(cluster.url("app"), user="reader", password=PASSWORD)
    with pytest.raises(ReadOnlyError, match="grant-permission"):
        commit(writer, put(b"k", b"2"))
    writer.close()
    for user, password in (("root", "wr0ng"), ("nobody", PASSWORD)):
        with pytest.raises(EngineError) as caught:
            EtcdEngine(cluster.url("app"), user=user, password=password, busy_timeout=3)
        assert password not in str(caught.value) + repr(caught.value.data)
    with pytest.raises(EngineError):
        EtcdEngine(cluster.url("app"), busy_timeout=3)
    cluster.kill()
    cluster.start()  # simple tokens end with the server that gave them
    commit(engine, put(b"l"))
    assert keys(engine, ALL) == [b"k", b"l"]
    engine.close()


def test_an_endpoint_on_which_nothing_listens_is_an_error():
    with pytest.raises(EngineTimeoutError):
        EtcdEngine(f"etcd://127.0.0.1:{free_port()}/app", busy_timeout=0.5)
