"""Eight processes write to three nodes of etcd 3.4.23 while the leader is killed, frozen or cut off from the others.

What was acknowledged is there, nothing is applied twice, the history replays, and the store checks clean. Each test
prints the longest time between two acknowledged writes.
"""

from __future__ import annotations

import pytest

from tests.crowd import Crowd
from tests.etcd.partition import partitioned_cluster
from tests.etcd.server import EtcdCluster, EtcdNode, own_cluster

BETWEEN = 60
"""Acknowledged writes between two faults."""

FAULTS = [pytest.param(3, marks=pytest.mark.servers), pytest.param(20, marks=pytest.mark.soak)]


def others(cluster: EtcdCluster, node: EtcdNode) -> list[EtcdNode]:
    return [one for one in cluster.nodes if one is not node]


@pytest.mark.parametrize("faults", FAULTS)
def test_the_leader_is_killed_and_started_again(faults: int):
    with own_cluster(3) as cluster:
        crowd = Crowd(cluster.url("crowd"), 1, processes=True)
        for _ in range(faults):
            crowd.wait_for(BETWEEN)
            leader = cluster.leader()
            leader.kill()
            cluster.leader(others(cluster, leader))
            crowd.wait_for(BETWEEN)
            cluster.restart(leader)
        crowd.wait_for(BETWEEN)
        crowd.finish()


@pytest.mark.parametrize("faults", FAULTS)
def test_the_leader_stops_and_goes_on_when_another_one_leads(faults: int):
    with own_cluster(3) as cluster:
        crowd = Crowd(cluster.url("crowd"), 2, processes=True)
        for _ in range(faults):
            crowd.wait_for(BETWEEN)
            leader = cluster.leader()
            leader.freeze()
            cluster.leader(others(cluster, leader))
            crowd.wait_for(BETWEEN)
            leader.thaw()
        crowd.wait_for(BETWEEN)
        crowd.finish()


@pytest.mark.parametrize("faults", FAULTS)
def test_the_leader_is_cut_off_from_the_other_nodes(faults: int):
    """Clients still reach it, and it may take their requests without being able to carry them out."""
    with partitioned_cluster(3) as cluster:
        crowd = Crowd(cluster.url("crowd"), 3, processes=True)
        for _ in range(faults):
            crowd.wait_for(BETWEEN)
            leader = cluster.leader()
            cluster.cut_off(leader)
            cluster.leader(others(cluster, leader))
            crowd.wait_for(BETWEEN)
            cluster.heal()
        crowd.wait_for(BETWEEN)
        crowd.finish()


@pytest.mark.parametrize("faults", FAULTS)
def test_all_nodes_are_killed_and_started_again(faults: int):
    with own_cluster(3) as cluster:
        crowd = Crowd(cluster.url("crowd"), 4, processes=True)
        for _ in range(faults):
            crowd.wait_for(BETWEEN)
            cluster.kill()
            cluster.start()
        crowd.wait_for(BETWEEN)
        crowd.finish()
