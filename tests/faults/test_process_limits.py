"""What a worker sets for itself when it starts: who goes first when memory runs out, and how many descriptors."""

from __future__ import annotations

import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

from holdfast import DataLoader
from holdfast.workers import limits
from waits import PATIENCE_S

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc"),
]


def own_score() -> int:
    return int(Path("/proc/self/oom_score_adj").read_text())


class Scores(Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return own_score()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver", "portable"])
def test_the_kernel_takes_a_worker_before_the_trainer(method: str) -> None:
    """The highest there is; that of this process is as it was."""
    before = own_score()
    how: dict[str, Any] = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    with DataLoader(Scores(), 1, num_workers=2, **how) as loader:
        assert [int(batch) for batch in loader] == [1000] * 4
    assert own_score() == before < 1000


def test_a_score_is_never_lowered() -> None:
    """That of a job whose scheduler has made it the first to go."""
    program = """
        from pathlib import Path
        from holdfast.workers import limits
        file = Path("/proc/self/oom_score_adj")
        limits._FIRST_TO_GO = 500
        limits.be_first_to_go()
        print(file.read_text(), end="")
        file.write_text("900")
        limits.be_first_to_go()
        print(file.read_text(), end="")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == "500\n900\n", done.stderr


class Limits(Dataset[int]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_descriptors_are_as_many_as_are_allowed_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here and in the workers, from the first iterator on."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    try:
        with DataLoader(Limits(), 1, num_workers=1) as loader:
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1024
            assert [int(batch) for batch in loader] == [before[1]] * 2
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_limit_that_is_as_high_as_it_can_be_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: pytest.fail("set"))
    limits.raise_descriptor_limit()
