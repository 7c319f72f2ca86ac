"""Clusters whose nodes are in network namespaces, so that a partition drops packets and ends no connection.

Each node has two cables: one to this machine, for clients, and one to a switch, for the other nodes. A partition pulls
the second one. Namespaces and cables vanish with the processes in them, also if the run is killed.
"""

from __future__ import annotations

import random
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.crowd import until
from tests.etcd.server import USERS, EtcdCluster, EtcdNode, cluster_folders

FOR_CLIENTS = "198.18"
FOR_NODES = "198.19.0"
"""Two networks for tests of networks (RFC 2544), which no machine uses otherwise."""

NETWORKS = 256
PEERS = "peers"
REACHED_S = 60


class NetworkNamespace:
    """A network namespace, which exists as long as a process runs in it, at least until it is closed."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo made; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        if not self._holder.stdout.readline():
            self.close()
            raise RuntimeError("network namespaces are not permitted here")

    @property
    def pid(self) -> str:
        """The id of a process in it."""
        return str(self._holder.pid)

    def command(self, *words: str | Path) -> list[str | Path]:
        """Return the command that runs another one inside."""
        return ["nsenter", f"--target={self.pid}", "--net", *words]

    def ip(self, *arguments: str) -> None:
        """Run ``ip`` inside. Raises RuntimeError."""
        _run(*self.command("ip", *arguments))

    def close(self) -> None:
        """End the process that holds it."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.stdout.close()
        self._holder.wait()


class NamespacedNode(EtcdNode):
    """A node in a network namespace of its own.

    Args:
        folder: empty.
        number: of the node, from 0.
        network: of the clients.
        switch: the namespace that connects the nodes.
        stack: ends what is made here.
    """

    def __init__(self, folder: Path, number: int, network: int, switch: NetworkNamespace, stack: ExitStack) -> None:
        super().__init__(folder, name=f"n{number}")
        self._number = number
        self._switch = switch
        self._net = f"{FOR_CLIENTS}.{network}"
        self._namespace = NetworkNamespace()
        stack.callback(self._namespace.close)
        self._connect(f"kvm{network}n{number}")
        self.make()

    @property
    def host(self) -> str:
        """Its address for clients."""
        return f"{self._net}.{4 * self._number + 2}"

    @property
    def peer_url(self) -> str:
        """Its URL for the other nodes."""
        return f"http://{FOR_NODES}.{self._number + 1}:{self.peer_port}"

    def cut_off(self) -> None:
        """Pull the cable to the other nodes: packets are dropped in both directions."""
        self._switch.ip("link", "set", self.name, "down")

    def heal(self) -> None:
        """Put the cable back."""
        self._switch.ip("link", "set", self.name, "up")

    def inside(self, command: Sequence[str | Path]) -> list[str | Path]:
        """Return the command that runs the server in its namespace."""
        return self._namespace.command(*command)

    def _connect(self, cable: str) -> None:
        """Make both cables. The name of the one to this machine is taken once, and so is its network."""
        of_node = self._namespace.ip
        _connect_to_this_machine(self._namespace, cable, f"{self._net}.{4 * self._number + 1}", self.host)
        of_node("link", "add", PEERS, "type", "veth", "peer", "name", self.name, "netns", self._switch.pid)
        self._switch.ip("link", "set", self.name, "master", PEERS, "up")
        of_node("address", "add", f"{FOR_NODES}.{self._number + 1}/24", "dev", PEERS)
        of_node("link", "set", PEERS, "up")


class NamespacedCluster(EtcdCluster):
    """Nodes in network namespaces.

    Args:
        nodes: made, and not started.
        users: as those of a cluster.
    """

    def __init__(self, nodes: Sequence[NamespacedNode], users: Path) -> None:
        super().__init__(nodes, users)
        self._namespaced = {node.name: node for node in nodes}

    def cut_off(self, node: EtcdNode) -> None:
        """Drop every packet between a node and the other ones."""
        self._namespaced[node.name].cut_off()

    def heal(self) -> None:
        """Connect all nodes, and wait until they have the same leader."""
        for node in self._namespaced.values():
            node.heal()
        until(lambda: len({node.status().leader for node in self.nodes}) == 1)


@contextmanager
def namespaced_cluster(size: int) -> Iterator[NamespacedCluster]:
    """A cluster for one test, in namespaces of its own."""
    with cluster_folders(size) as folders, ExitStack() as stack:
        switch = NetworkNamespace()
        stack.callback(switch.close)
        switch.ip("link", "add", PEERS, "type", "bridge")
        switch.ip("link", "set", PEERS, "up")
        network = _free_network()
        nodes = [NamespacedNode(folder, at, network, switch, stack) for at, folder in enumerate(folders)]
        cluster = NamespacedCluster(nodes, folders[0] / USERS)
        stack.callback(cluster.kill)
        cluster.start()
        yield cluster


def namespaces_are_permitted() -> bool:
    """Whether this process may make network namespaces, connect them, and reach one."""
    try:
        namespace = NetworkNamespace()
    except (OSError, RuntimeError):
        return False
    try:
        network = _free_network()
        near, far = (f"{FOR_CLIENTS}.{network}.{number}" for number in (1, 2))
        _connect_to_this_machine(namespace, f"kvm{network}n0", near, far)
        namespace.ip("link", "add", PEERS, "type", "bridge")
        socket.create_connection((far, 1), timeout=REACHED_S).close()
    except ConnectionRefusedError:
        return True  # by the namespace, in which nothing listens
    except (OSError, RuntimeError):
        return False
    finally:
        namespace.close()
    return False


def _connect_to_this_machine(namespace: NetworkNamespace, cable: str, near: str, far: str) -> None:
    """Connect a namespace by a cable with these addresses of its ends."""
    _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "clients", "netns", namespace.pid)
    _run("ip", "address", "add", f"{near}/30", "dev", cable)
    _run("ip", "link", "set", cable, "up")
    namespace.ip("address", "add", f"{far}/30", "dev", "clients")
    for device in ("lo", "clients"):
        namespace.ip("link", "set", device, "up")


def _free_network() -> int:
    """A number of a network for clients that no other test uses."""
    routes = _run("ip", "-4", "address")
    free = [one for one in range(NETWORKS) if f" {FOR_CLIENTS}.{one}." not in routes]
    return random.SystemRandom().choice(free)


def _run(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout
