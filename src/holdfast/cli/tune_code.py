"""The proposal of `holdfast tune` as code to paste.

Runs in: main process.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.tasks.tune.facts import Setting
    from holdfast.tasks.tune.session import Outcome


def call(setting: Setting, outcome: Outcome) -> str:
    """One argument a line, so that it fits any window; "" where nothing is proposed."""
    if outcome.proposal is None:
        return ""
    given = {"batch_size": f"{setting.batch_size}"}
    if setting.collate is not None:
        given["collate_fn"] = setting.collate.rpartition(":")[2]
    if setting.start_method is not None:
        given["multiprocessing_context"] = json.dumps(setting.start_method)
    given |= {name: json.dumps(value) for name, value in outcome.proposal.arguments().items()}
    lines = ["dataset", *(f"{name}={value}" for name, value in given.items())]
    return "\n".join(["loader = DataLoader(", *(f"    {line}," for line in lines), ")"])
