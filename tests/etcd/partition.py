"""Clusters whose nodes can be cut off from one another, while clients reach all of them.

A proxy stands in front of the port of each node for the others. Every request of a node names the node, so the proxies
know from whom a connection comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.etcd.proxy import TcpProxy, nothing, proxy_of
from tests.etcd.server import LOOPBACK, USERS, EtcdCluster, EtcdNode, cluster_folders


class PartitionedNode(EtcdNode):
    """A node whose URL for the others is that of a proxy.

    Args:
        folder: empty.
        name: in its cluster.
        proxies: receives the proxy.
    """

    def __init__(self, folder: Path, name: str, proxies: ExitStack) -> None:
        super().__init__(folder, name=name)
        self.make()
        self.proxy: TcpProxy = proxies.enter_context(proxy_of(self.peer_port))
        self.flags["listen-peer-urls"] = f"http://{LOOPBACK}:{self.peer_port}"

    @property
    def peer_url(self) -> str:
        """The URL of its proxy."""
        return f"http://{self.proxy.endpoint}"


class PartitionedCluster(EtcdCluster):
    """Nodes that can be cut off.

    Args:
        nodes: made, and not started.
        users: as those of a cluster.
    """

    def __init__(self, nodes: Sequence[PartitionedNode], users: Path) -> None:
        super().__init__(nodes, users)
        self._proxies = {node.name: node.proxy for node in nodes}

    def cut_off(self, node: EtcdNode) -> None:
        """End every connection between a node and the other ones, and each that is made later."""
        mark = b"X-Server-From: %x\r\n" % node.status().member
        for name, proxy in self._proxies.items():
            proxy.severed = _everything if name == node.name else lambda head: mark in head

    def heal(self) -> None:
        """Let all nodes reach one another again."""
        for proxy in self._proxies.values():
            proxy.severed = nothing


def _everything(head: bytes) -> bool:
    return True


@contextmanager
def partitioned_cluster(size: int) -> Iterator[PartitionedCluster]:
    """A cluster for one test, whose nodes it may cut off."""
    with cluster_folders(size) as folders, ExitStack() as stack:
        nodes = [PartitionedNode(folder, f"n{at}", stack) for at, folder in enumerate(folders)]
        cluster = PartitionedCluster(nodes, folders[0] / USERS)
        stack.callback(cluster.kill)
        cluster.start()
        yield cluster
