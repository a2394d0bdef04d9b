"""What the pools do, as tables for the terminal and for the README.

Runs in: main.
"""

from __future__ import annotations

from rich.table import Table

from .pool import CASES, PoolResult
from .pool_contenders import CONTENDERS
from .report import pool_targets

Row = tuple[str, ...]


def rows(result: PoolResult) -> list[Row]:
    """Return each case: what is counted, and every contender's figure with its ratio to the standard library's."""
    return [(f"{case}, {unit}", *(_cell(result, case, name) for name in CONTENDERS)) for case, unit in CASES.items()]


def _cell(result: PoolResult, case: str, name: str) -> str:
    figure = result.median(case, name)
    said = f"{figure:.0f}" if figure >= 100 else f"{figure:.2f}"
    return f"{said} ({result.ratio(case, name):.2f})"


def pool_table(result: PoolResult) -> Table:
    """Everything, and which targets were met."""
    table = Table(title="Pools: figure (ratio to concurrent.futures)")
    for title in ("", *CONTENDERS):
        table.add_column(title, justify="left" if not title else "right")
    for row in rows(result):
        table.add_row(*row)
    table.add_section()
    for target in pool_targets(result):
        table.add_row(str(target), "[green]met[/green]" if target.met else "[red]missed[/red]")
    return table


def pool_markdown(result: PoolResult) -> str:
    """The same for the README."""
    lines = [f"| pools | {' | '.join(CONTENDERS)} |", f"|---|{len(CONTENDERS) * '---:|'}"]
    lines += [f"| {' | '.join(row)} |" for row in rows(result)]
    legend = "In brackets the ratio to `concurrent.futures`. In the last row the function's module imports torch."
    return "\n".join([*lines, "", legend])
