"""The comparison of `holdfast bench`: who plays when, what the figures mean, and no child is waited for in vain."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from rich.console import Console

from holdfast.cli import bench_text
from holdfast.cli.bench_text import Setting
from holdfast.tasks.bench.match import Match, Plan
from holdfast.tasks.bench.opponent import LostError, NotPlayableError, Opponent
from holdfast.tasks.bench.results import Cell, Round, Side

PLAN = Plan(workers=(0, 2), rounds=3, round_s=1.0, patience_s=5.0)


class Played(Opponent):
    """Answers from a list, the last one for ever."""

    def __init__(self, name: str, log: list[str], digests: list[list[str]], **answer: Any) -> None:
        super().__init__([])
        self._name, self._log, self._digests, self._said = name, log, digests, answer

    def begin(self) -> None:
        pass

    def ready(self) -> None:
        pass

    def ask(self, order: dict[str, Any], limit_s: float) -> dict[str, Any]:
        self._log.append(f"{order['do']} {self._name} {order['workers']}")
        if "lost" in self._said:
            raise LostError(self._said["lost"], is_hang=True)
        answer = {"failures": 0, "first_failures": [], "ended": None, "refused": None} | self._said
        if order["do"] == "compare":
            return answer | {"digests": self._digests.pop(0) if len(self._digests) > 1 else self._digests[0]}
        timed = {"first_batch_s": 0.5, "batches": 11, "seconds": 1.5, "later_batches": 10, "later_s": 1.0}
        return timed | {"epoch_batches": None, "memory_bytes": 1 << 20} | answer


def match(torch: dict[str, Any], holdfast: dict[str, Any], plan: Plan = PLAN) -> tuple[list[Cell], list[str]]:
    """The cells, and who was asked for what."""
    log: list[str] = []
    players = {
        name: Played(name, log, answer.pop("digests", [["a", "b"]]), **answer)
        for name, answer in (("torch", {**torch}), ("holdfast", {**holdfast}))
    }
    return Match(plan, players, lambda what: None).run(), log


def test_loaders_take_turns_and_who_is_first_changes() -> None:
    """First both are compared, then timed."""
    _, log = match({}, {}, Plan((2,), 3, 1.0, 5.0))
    compare, timed = log[:2], [each.split()[1] for each in log[2:]]
    assert compare == ["compare torch 2", "compare holdfast 2"]
    assert timed == ["torch", "holdfast", "holdfast", "torch", "torch", "holdfast"]


def test_medians_and_their_ratio() -> None:
    """Batches per second, ours over torch's."""
    cells, _ = match({}, {"later_s": 0.5})
    assert [(cell.torch.rate, cell.holdfast.rate, cell.ratio) for cell in cells] == [(10, 20, 2)] * 2
    assert [cell.problems for cell in cells] == [[], []]


def test_batches_that_differ_are_a_problem() -> None:
    """Unless torch's own differ as well."""
    cells, log = match({"digests": [["a", "b"]]}, {"digests": [["a", "c"]]})
    assert cells[0].problems == ["1 of 2 batches differ from torch's"]
    assert log[:3] == ["compare torch 0", "compare holdfast 0", "compare torch 0"]
    random, _ = match({"digests": [["a", "b"], ["x", "y"]] * 2}, {"digests": [["a", "c"]]})
    assert (random[0].is_random, random[0].problems) == (True, [])


def test_a_batch_that_torch_lost_with_its_worker_does_not_differ() -> None:
    """Its loader raises at it, then says that the worker is dead. What came before is compared, also what raised."""
    died = {"ended": "could not go on", "digests": [["a", "raised", "raised", "c"]]}
    cells, _ = match(died, {"digests": [["a", "raised", "b", "c"]]})
    assert (cells[0].compared, cells[0].equal) == (2, 2)
    cells, _ = match({"digests": [["a", "raised"]]}, {"digests": [["a", "b"]]})
    assert cells[0].differs


def test_to_be_slower_is_a_problem_where_it_is_no_noise() -> None:
    """Two runs of the same loader differ by some."""
    cells, _ = match({}, {"later_s": 2.0})
    assert cells[0].problems == ["holdfast is slower than torch, 0.50 of its rate"]
    assert not match({}, {"later_s": 1.05})[0][0].is_slower
    quick, slow = Round(0.1, 11, 1.0, 10, 0.5, None), Round(0.1, 11, 1.0, 10, 2.0, None)
    mixed = Cell(2, Side((quick, quick, quick)), Side((slow, slow, quick)), 1, 1, is_random=False)
    assert mixed.ratio == 0.25
    assert mixed.is_slower is False


def test_a_loader_that_hung_is_not_tried_again() -> None:
    """Each time would cost the whole limit; ours is, once it has workers whose samples have a timeout."""
    cells, log = match({"lost": "it hung"}, {"lost": "it hung"})
    assert log == ["compare torch 0", "compare holdfast 0"]
    assert [cell.torch.ended for cell in cells] == ["it hung", "not tried: it hung with 0 workers"]
    _, log = match({"lost": "it hung"}, {"lost": "it hung"}, Plan((0, 2), 1, 1.0, 5.0, ends_hung_samples=True))
    assert log == ["compare torch 0", "compare holdfast 0", "compare holdfast 2"]


def test_arguments_that_a_loader_refuses_end_the_match() -> None:
    """There is nothing to compare."""
    with pytest.raises(NotPlayableError, match="torch's DataLoader refuses these arguments: ValueError: no"):
        match({"refused": "ValueError: no"}, {})


def test_epochs_of_one_batch_have_a_rate() -> None:
    """With the start of each epoch."""
    assert Round(0.5, 4, 2.0, 0, 0.0, 1).rate == 2
    assert Round(0.0, 0, 0.0, 0, 0.0, 0).rate == 0


# --- the child --------------------------------------------------------------------------------------------------------


def opponent(program: str) -> Opponent:
    return Opponent([sys.executable, "-c", program])


def test_a_child_that_does_not_answer_is_ended_with_what_it_started() -> None:
    """Also with a process below it that has left its session; nothing is left behind."""
    child = opponent(
        "import json, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print(json.dumps({'ready': True}), flush=True)\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(LostError, match="it hung: no answer within 1 s") as lost:
        child.ask({"do": "time"}, 1.0)
    assert lost.value.is_hang


@pytest.mark.parametrize(("end", "how"), [("os.abort()", "of SIGABRT"), ("os._exit(3)", "with status 3")])
def test_a_child_that_dies_is_told_apart_from_one_that_hangs(end: str, how: str) -> None:
    """And the next order starts another."""
    child = opponent(
        f"import os, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        f"print('{{\"ready\": true}}', flush=True)\ninput()\n{end}\n"
    )
    for _ in range(2):
        with pytest.raises(LostError, match=f"the whole process died {how}") as lost:
            child.ask({"do": "time"}, 60.0)
        assert not lost.value.is_hang
    child.close()


def test_a_child_without_a_dataset_says_so() -> None:
    """What it says is for who gave the command."""
    child = opponent('print(\'{"usage": "There is no module x"}\', flush=True)')
    with pytest.raises(NotPlayableError, match="There is no module x"):
        child.ready()


# --- how it looks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    """The table where it fits, lines where it does not; whatever went wrong stands below."""
    rounds = (Round(12.345, 100, 10.0, 99, 0.0123, 5),)
    bad = Side((), 3, ("ValueError: [bold]" + "x" * 60,), "could not go on after RuntimeError: \x1b[31m killed", None)
    cells = [
        Cell(64, Side(rounds, memory_bytes=1 << 40), Side(rounds, memory_bytes=1 << 40), 16, 15, is_random=False),
        Cell(0, bad, Side(rounds, 7, ("KeyError: 1",)), 0, 0, is_random=False),
    ]
    arguments = {"batch_size": 32, "shuffle": True, "start_method": "forkserver"}
    setting = Setting("a.long.module.name:AndItsDataset", arguments, PLAN, {"dataset": "Photos", "length": 10**7})
    written = io.StringIO()
    console = Console(file=written, width=columns, force_terminal=True, color_system=None, highlight=False)
    bench_text.print_cells(console, setting, cells)
    lines = written.getvalue().splitlines()
    assert [line for line in lines if len(line.rstrip()) > columns] == []
    assert "\x1b" not in written.getvalue()
    said = " ".join(written.getvalue().split())
    assert "holdfast" in said
    assert "1 of 16 differ from torch's" in said
    assert "fewer than 10 batches" in said
