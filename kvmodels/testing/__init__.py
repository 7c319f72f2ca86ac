"""Tools for tests of programs that use kvmodels: fault injection, and races that run step by step."""

from __future__ import annotations

from kvmodels.api.core import DatabaseCore
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.testing.interleaving import Interleaving, explore_races
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates, StepHistory, VirtualTime

__all__ = [
    "DatabaseCore",
    "FaultEngine",
    "FaultRates",
    "Interleaving",
    "MemoryEngine",
    "Process",
    "StepHistory",
    "VirtualTime",
    "explore_races",
]
