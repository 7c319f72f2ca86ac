"""Eight processes write to three nodes of etcd 3.4.23 while nodes are killed, frozen or cut off from the others.

What was acknowledged is there, nothing is applied twice, the history replays, and the store checks clean. Each test
prints the longest time between two acknowledged writes. While a leader is cut off, clients still reach it, and it may
take their requests without being able to carry them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pytest

from tests.crowd import Crowd, opened
from tests.etcd.namespaces import namespaced_cluster, namespaces_are_permitted
from tests.etcd.partition import partitioned_cluster
from tests.etcd.server import EtcdCluster, EtcdNode, own_cluster

BETWEEN = 60
"""Acknowledged writes between two faults."""

TIMES = [pytest.param(3, marks=pytest.mark.servers), pytest.param(20, marks=pytest.mark.soak)]


class Fault(NamedTuple):
    """Something that befalls a cluster.

    Attributes:
        seed: of the writers.
        cluster: makes the cluster.
        begin: befalls the leader.
        end: repairs it.
        leads_on: whether another node leads in between.
    """

    seed: int
    cluster: Callable[[int], AbstractContextManager[Any]]
    begin: Callable[[Any, EtcdNode], object]
    end: Callable[[Any, EtcdNode], object]
    leads_on: bool = True


def packets_dropped(size: int) -> AbstractContextManager[EtcdCluster]:
    """A cluster that a partition splits by dropping packets; where that is not permitted, by ending connections."""
    return namespaced_cluster(size) if namespaces_are_permitted() else partitioned_cluster(size)


FAULTS = {
    "the leader is killed": Fault(
        1, own_cluster, lambda _, leader: leader.kill(), lambda cluster, leader: cluster.restart(leader)
    ),
    "the leader stops": Fault(2, own_cluster, lambda _, leader: leader.freeze(), lambda _, leader: leader.thaw()),
    "the connections of the leader end": Fault(
        3, partitioned_cluster, lambda cluster, leader: cluster.cut_off(leader), lambda cluster, _: cluster.heal()
    ),
    "the packets of the leader are dropped": Fault(
        4, packets_dropped, lambda cluster, leader: cluster.cut_off(leader), lambda cluster, _: cluster.heal()
    ),
    "all nodes are killed": Fault(
        5, own_cluster, lambda cluster, _: cluster.kill(), lambda cluster, _: cluster.start(), leads_on=False
    ),
}


@contextmanager
def crowd_on(cluster: EtcdCluster, seed: int) -> Iterator[Crowd]:
    """Eight processes that write, judged at the end."""
    crowd = Crowd(cluster.url("crowd"), seed, processes=True)
    yield crowd
    crowd.wait_for(BETWEEN)
    crowd.finish()


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("name", FAULTS)
def test_no_acknowledged_write_is_lost_or_applied_twice_when(name: str, times: int):
    fault = FAULTS[name]
    with fault.cluster(3) as cluster, crowd_on(cluster, fault.seed) as crowd:
        for _ in range(times):
            crowd.wait_for(BETWEEN)
            leader = cluster.leader()
            fault.begin(cluster, leader)
            if fault.leads_on:
                cluster.leader([node for node in cluster.nodes if node is not leader])
                crowd.wait_for(BETWEEN)
            fault.end(cluster, leader)


@pytest.mark.servers
def test_writes_go_on_when_the_leader_is_removed_from_the_cluster_and_its_endpoint_is_still_named():
    with own_cluster(3) as cluster:
        url = cluster.url("crowd")
        with crowd_on(cluster, 6) as crowd:
            crowd.wait_for(BETWEEN)
            cluster.remove_leader().wait_for_its_end()
            crowd.wait_for(BETWEEN)
        with opened(url) as db:
            assert db.check().ok
