"""`python -m chaos`: kill workers and supervisors of real loaders, and compare what they deliver with torch's.

Exit status: 0 when everything was delivered as by torch (a missed aim is printed), 1 when not, 2 for wrong usage.
Runs in: main.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import json
import os
import resource
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from rich.console import Console

import holdfast

from .killer import STACKS_SIGNAL
from .report import Report, as_json
from .scenarios import make_scenario
from .table import make_console, print_outcome, print_report
from .training import run_scenario

METHODS = ("fork", "spawn", "forkserver", "portable")
KILLS = {"fork": 10_000, "spawn": 300, "forkserver": 300, "portable": 300}
QUICK_KILLS = {"fork": 30, "spawn": 6}
KILLS_PER_SCENARIO = {"fork": 50, "spawn": 20, "forkserver": 20, "portable": 20}
QUICK_SCENARIOS = 2


def main() -> int:
    """Run what was asked for; return the exit status. Records are kept, as by default, but not among the user's."""
    options = parse_options()
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as home:
        os.environ["HOLDFAST_HOME"] = home
        return run(options)


def run(options: argparse.Namespace) -> int:
    """Kill, compare, print; return the exit status."""
    _prepare()
    console = make_console(to_stderr=options.json == Path("-"))
    report = Report()
    for method in options.methods:
        _run_method(method, options, report, console)
    print_report(console, report)
    if options.json == Path("-"):
        print(json.dumps(as_json(report)))
    elif options.json:
        options.json.write_text(json.dumps(as_json(report), indent=1) + "\n")
    return 1 if report.failures else 0


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--methods", type=_methods, metavar="NAME,...", help="default: all that this holdfast has")
    parser.add_argument("--kills", type=int, metavar="N", help="per method; default 10,000 under fork, 300 otherwise")
    parser.add_argument("--seed", type=int, default=0, help="of the scenarios, the data and the kills; default 0")
    parser.add_argument("--scenario", type=int, metavar="K", help="only this one, as a failure names it")
    parser.add_argument("--quick", action="store_true", help="30 kills under fork and 6 under spawn")
    parser.add_argument("--json", type=Path, nargs="?", const=Path("-"), metavar="FILE", help="figures; default stdout")
    options = parser.parse_args()
    if options.methods is None:
        options.methods = list(QUICK_KILLS) if options.quick else [name for name in METHODS if _is_there(name)]
    return options


def _methods(text: str) -> list[str]:
    chosen = text.split(",")
    unknown = [name for name in chosen if name not in METHODS or not _is_there(name)]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
    return chosen


def _is_there(method: str) -> bool:
    if method != "portable":
        return True
    try:
        holdfast.DataLoader([], num_workers=1, backend="portable")  # type: ignore[arg-type]
    except ValueError:
        return False
    return True


def _prepare() -> None:
    """One thread, no core files, and stacks when the killer asks. Not at fatal signals: workers would inherit that."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.register(STACKS_SIGNAL, all_threads=True)
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))


def _run_method(method: str, options: argparse.Namespace, report: Report, console: Console) -> None:
    """Scenario after scenario, until enough was killed."""
    kills = options.kills or (QUICK_KILLS if options.quick else KILLS).get(method, min(QUICK_KILLS.values()))
    in_each = -(-kills // QUICK_SCENARIOS) if options.quick else KILLS_PER_SCENARIO[method]
    if options.scenario is not None:
        kills = in_each = options.kills or KILLS_PER_SCENARIO[method]
    done = 0
    for number in itertools.count(options.scenario or 0):
        scenario = make_scenario(method, options.seed, number)
        if options.quick and not (scenario.is_light and scenario.is_map == (done == 0)):
            continue  # two light ones: first a map-style dataset, then an iterable
        wanted = min(in_each, kills - done)
        outcome = run_scenario(scenario, wanted)
        print_outcome(console, outcome)
        report.outcomes.append(outcome)
        done += wanted
        if done >= kills:
            return


if __name__ == "__main__":
    sys.exit(main())
