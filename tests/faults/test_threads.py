"""How many threads the native libraries of a worker have, and how many threads it really gets."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController
from torch.utils.data import Dataset

from helpers import START_METHODS
from holdfast import DataLoader, ProcessPoolExecutor, spawn
from waits import PATIENCE_S

METHODS = (*START_METHODS, "portable")
NATIVE = 4


class Threads(Dataset[list[int]]):
    """A sample is, after a product that would be worth threads: torch's number, the most of any library, all tasks."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> list[int]:
        factor = np.ones((400, 400))
        factor @ factor
        libraries = ThreadpoolController().lib_controllers
        blas = [library.num_threads for library in libraries if library.user_api == "blas"]
        tasks = sum(1 for _ in Path("/proc/self/task").iterdir())
        return [torch.get_num_threads(), max(blas), tasks]


def set_blas_threads(worker_id: int) -> None:
    for library in ThreadpoolController().lib_controllers:
        if library.user_api == "blas":
            library.set_num_threads(NATIVE)


def readings(method: str, **options: object) -> list[list[int]]:
    chosen = {"backend": "portable"} if method == "portable" else {"multiprocessing_context": method}
    return list(DataLoader(Threads(), batch_size=None, num_workers=2, **chosen, **options))  # type: ignore[arg-type]


@pytest.fixture
def many_here() -> Iterator[None]:
    """This process has several, whatever the machine has; and has them after."""
    controller = ThreadpoolController()
    with controller.limit(limits=NATIVE):
        yield
        assert {library.num_threads for library in controller.lib_controllers} == {NATIVE}


@pytest.mark.usefixtures("many_here")
@pytest.mark.parametrize("method", METHODS)
def test_a_worker_starts_with_one_thread(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of numpy's BLAS, of which torch knows nothing; and this process keeps its own."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for in_torch, blas, _ in readings(method):
        assert (in_torch, blas) == (1, 1)


@pytest.mark.usefixtures("many_here")
@pytest.mark.parametrize("method", METHODS)
def test_a_worker_of_a_pool_starts_with_one_thread(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of a loader."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    context = None if method == "portable" else multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, context, backend="portable" if context is None else None) as pool:
        assert pool.submit(Threads().__getitem__, 0).result(PATIENCE_S)[:2] == [1, 1]


def write_blas_threads(rank: int, path: Path) -> None:
    path.write_text(str(Threads()[rank][1]))


@pytest.mark.usefixtures("many_here")
def test_a_rank_keeps_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the program itself: as many of the BLAS as this process, of which it is a fork."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    spawn(write_blas_threads, (tmp_path / "threads",), start_method="fork")
    assert (tmp_path / "threads").read_text() == str(NATIVE)


@pytest.mark.usefixtures("many_here")
def test_a_forked_worker_has_no_other_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even idle ones: the libraries are told in the process that is forked, and a fork has one thread."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [tasks for _, _, tasks in readings("fork")] == [1, 1]


@pytest.mark.usefixtures("many_here")
@pytest.mark.parametrize("method", METHODS)
def test_what_worker_init_fn_sets_counts(method: str) -> None:
    """It comes after us."""
    assert [blas for _, blas, _ in readings(method, worker_init_fn=set_blas_threads)] == [NATIVE, NATIVE]


@pytest.mark.usefixtures("many_here")
def test_a_library_that_the_environment_tells_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own number is one all the same, as in torch's loader."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", str(NATIVE))
    for in_torch, blas, _ in readings("fork"):
        assert (in_torch, blas) == (1, NATIVE)
