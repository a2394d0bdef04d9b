"""More threads in workers than CPUs: when it is said, in which words, and how often."""

from __future__ import annotations

import warnings

import pytest

import holdfast
from helpers import Numbers
from holdfast import DataLoader, HoldfastWarning, options
from holdfast.workers import crowding
from holdfast.workers.crowding import find_crowding


@pytest.mark.parametrize(
    ("num_workers", "threads", "cpus", "known_to_torch"),
    [(2, 1, 2, 2), (2, 1, 8, 8), (2, 4, 8, 64), (3, 1, 2, 2), (9, 2, 2, 8)],
    ids=["all", "few", "threads fit", "torch says it", "torch says it, and there are threads"],
)
def test_nothing_is_said_where_they_fit_or_torch_says_it(
    num_workers: int, threads: int, cpus: int, known_to_torch: int
) -> None:
    """One warning about one mistake."""
    assert find_crowding(num_workers, threads, cpus, known_to_torch) is None


def test_a_quota_that_torch_does_not_know_is_named() -> None:
    """Both numbers, what limits, and what to write."""
    said = find_crowding(8, threads=1, cpus=2, shown=64)
    assert said == (
        "8 workers want 8 CPUs, and this process may use 2: the machine shows 64, but a cgroup limits their time. "
        "More than that are slower, not faster: try DataLoader(..., num_workers=2)"
    )


def test_threads_of_each_worker_are_counted() -> None:
    """Four workers of four threads on eight CPUs."""
    said = find_crowding(4, threads=4, cpus=8, shown=8)
    assert said is not None
    assert said.startswith("4 workers with 4 threads each, as the environment says, want 16 CPUs, and this process may")
    assert said.endswith("try DataLoader(..., num_workers=2)")


@pytest.fixture
def unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has made no loader yet, on a machine of 64 CPUs with a quota of one."""
    monkeypatch.setattr(crowding, "_warned", [])
    monkeypatch.setattr(crowding, "_looked_at", set())
    monkeypatch.setattr(crowding, "available_cpus", lambda: 1)
    monkeypatch.setattr(crowding, "by_affinity", lambda: 64)


@pytest.mark.usefixtures("unsaid")
def test_it_is_said_once_in_a_process_and_about_the_users_line() -> None:
    """Whatever the filters: not for each epoch, and not for each loader."""
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        for _ in range(2):
            for _ in DataLoader(Numbers(4), num_workers=2):
                pass
    ours = [warning for warning in recorded if issubclass(warning.category, HoldfastWarning)]
    assert [str(warning.message)[:22] for warning in ours] == ["2 workers want 2 CPUs,"]
    assert ours[0].filename == __file__


@pytest.mark.usefixtures("unsaid")
def test_map_says_it_too_and_also_where_torch_would_have() -> None:
    """Of the number that it was given, and in its own words."""
    with pytest.warns(HoldfastWarning) as recorded:
        assert list(holdfast.map(abs, [-1, -2], num_workers=2, progress=False)) == [1, 2]
    assert str(recorded[0].message).endswith("try holdfast.map(..., num_workers=1)")
    assert recorded[0].filename == __file__
    said = find_crowding(65, threads=1, cpus=64, shown=64, call="holdfast.map", torch_warns=False)
    assert said is not None
    assert said.startswith("65 workers want 65 CPUs, and this process may use 64. More")


@pytest.mark.usefixtures("unsaid")
def test_map_without_a_number_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(holdfast.map(abs, [-1], progress=False)) == [1]


@pytest.mark.usefixtures("unsaid")
def test_a_loader_without_workers_says_nothing() -> None:
    """It wants no CPU of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(DataLoader(Numbers(4)))


# --- what the environment tells libraries -------------------------------------------------------------------------


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for names in options._THREADS_OF.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_worker_has_one_thread_unless_a_library_is_told_otherwise(untold: pytest.MonkeyPatch) -> None:
    assert options.threads_per_worker() == 1
    untold.setenv("OPENBLAS_NUM_THREADS", "3")
    assert (options.threads_per_worker(), options.threads_of("openblas"), options.threads_of("mkl")) == (3, 3, None)


def test_a_librarys_own_variable_goes_before_the_general_one(untold: pytest.MonkeyPatch) -> None:
    """As in OpenBLAS and MKL themselves."""
    untold.setenv("OMP_NUM_THREADS", "8,2")
    untold.setenv("MKL_NUM_THREADS", "2")
    assert [options.threads_of(name) for name in ("openmp", "openblas", "mkl")] == [8, 8, 2]


@pytest.mark.parametrize("value", ["", "0", "-1", "many"])
def test_what_is_no_number_tells_nothing(untold: pytest.MonkeyPatch, value: str) -> None:
    untold.setenv("OMP_NUM_THREADS", value)
    assert options.threads_of("openmp") is None
