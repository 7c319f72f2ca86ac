"""Draw query plans with rich, which the extra ``kvmodels[rich]`` installs.

Rules of this module: only drawing; the content of a plan comes from ``QueryPlan.tree()``. No other module imports this
one, so that the package works without rich.
"""

from __future__ import annotations

from kvmodels.errors import UnsupportedError
from kvmodels.query.plans import PlanNode, QueryPlan

try:
    from rich.text import Text
    from rich.tree import Tree
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "rich":
        raise
    raise UnsupportedError(
        "drawing a plan needs a package that is not installed",
        reason="rich",
        hint="Install it: pip install 'kvmodels[rich]'. Without it, print the plan itself.",
    ) from missing


def plan_tree(plan: QueryPlan) -> Tree:
    """Return a query plan as a printable tree.

    Args:
        plan: the result of ``explain()``; call it with ``analyze=True`` to show the reads too.

    Returns:
        The tree, with one branch for each detail and, if there are several, for each scan. Cost: none, nothing is read.

    Examples:
        >>> from rich.console import Console
        >>> from kvmodels import Database, Indexed, KvModel, PrimaryKey
        >>> class Bird(KvModel, collection="birds"):
        ...     ring: PrimaryKey[int]
        ...     species: Indexed[str]
        >>> birds = Database("memory://", models=[Bird])[Bird]
        >>> plan = birds.filter(species="wren")[:10].explain()
        >>> Console(width=80, color_system=None).print(plan_tree(plan))
        Bird: 1 range of index species
        ├── reads only: species = 'wren'
        ├── in order: ring
        └── reads: at most 20 rows and records
    """
    return _drawn(plan.tree())


def _drawn(node: PlanNode) -> Tree:
    # Plain text, not markup: rich could read an operand as a tag.
    tree = Tree(Text(node.label, style="bold"))
    for name, text in node.details:
        tree.add(Text.assemble((f"{name}: ", "dim"), text))
    for child in node.children:
        tree.children.append(_drawn(child))
    return tree
