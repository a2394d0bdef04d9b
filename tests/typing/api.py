"""The public API as a type checker sees it. Checked by mypy in strict mode, never run.

A `type: ignore` below marks a mistake that mypy must find: where it finds none, the unused comment is the error.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import assert_type

import torch
from prometheus_client import CollectorRegistry
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, TensorDataset

import holdfast
from holdfast import DataLoader, FailedItem, Incident, ProcessPoolExecutor, available_cpus, on_incident, share, spawn
from holdfast.errors import HoldfastError, HoldfastWarning, WorkerCrashed, WorkerError, WorkerInitError
from holdfast.graph import Graph, LinkNeighborLoader, NeighborLoader


class Lengths(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


def concat(samples: list[int]) -> torch.Tensor:
    return torch.tensor(samples)


def the_type_of_a_sample_is_kept() -> None:
    assert_type(DataLoader(Lengths()), DataLoader[int])
    tensors = TensorDataset(torch.zeros(4, 2))
    assert_type(DataLoader(tensors, 2), DataLoader[tuple[torch.Tensor, ...]])


def it_stands_where_torchs_loader_is_asked_for(loader: DataLoader[int]) -> TorchDataLoader[int]:
    return loader


def it_is_a_context_manager_that_gives_itself() -> None:
    with DataLoader(Lengths()) as loader:
        assert_type(loader, DataLoader[int])
        assert_type(len(loader), int)
        for _ in loader:
            pass


def statistics_have_parts(loader: DataLoader[int]) -> None:
    stats = loader.stats()
    assert_type(stats, holdfast.LoaderStats)
    assert_type(stats.stages.fetch_s, float)
    assert_type(stats.memory.workers_bytes, tuple[int, ...])
    assert_type(stats.slowest[0].seconds, float)


def samples_may_be_skipped_by_number_share_or_as_we_see_fit() -> None:
    for limit in (3, 0.1, None):
        DataLoader(Lengths(), on_error="skip", max_skipped=limit)
    DataLoader(Lengths(), on_error="skip", max_skipped="auto")
    DataLoader(Lengths(), on_error="skip", max_skipped="never")  # type: ignore[arg-type]


def close_takes_nothing(loader: DataLoader[int]) -> None:
    loader.close()
    loader.close(1)  # type: ignore[call-arg]


def torchs_arguments_keep_their_places_and_names(generator: torch.Generator) -> None:
    DataLoader(Lengths(), 4, True, None, None, 2, concat, False, False, 0, None, "fork", generator)
    DataLoader(
        Lengths(),
        batch_size=None,
        sampler=[0, 1],
        num_workers=2,
        prefetch_factor=4,
        persistent_workers=True,
        in_order=False,
    )
    DataLoader(Lengths(), batch_size="4")  # type: ignore[arg-type]


def no_argument_after_the_generator_has_a_place(generator: torch.Generator) -> None:
    DataLoader(Lengths(), 4, True, None, None, 2, concat, False, False, 0, None, "fork", generator, 2)  # type: ignore[call-arg]


def a_backend_is_a_name(name: str | None) -> None:
    DataLoader(Lengths(), backend=name)
    DataLoader(Lengths(), backend=3)  # type: ignore[arg-type]


def a_record_is_kept_or_not() -> None:
    assert_type(DataLoader(Lengths(), record=False).record, bool)
    DataLoader(Lengths(), record="/data/records")  # type: ignore[arg-type]


def what_is_shared_has_the_type_it_had(names: list[str], tensor: torch.Tensor) -> None:
    assert_type(share(names), list[str])
    assert_type(share({"x": tensor}), dict[str, torch.Tensor])
    share(names, tensor)  # type: ignore[call-arg]


def a_pool_has_the_types_of_the_standard_librarys(pool: ProcessPoolExecutor) -> None:
    assert_type(pool.submit(len, "abc"), Future[int])
    assert_type(pool.options(timeout=5).submit(len, "abc"), Future[int])
    assert_type(pool.map(len, ["abc"], chunksize=2), Iterator[int])
    pool.submit(len)  # type: ignore[call-arg]
    ProcessPoolExecutor(2, None, print, (1,), 5)  # type: ignore[call-arg]


def failures_are_values_only_where_they_are_asked_for(names: list[str]) -> None:
    assert_type(holdfast.map(len, names), Iterator[int])
    assert_type(holdfast.map(len, names, on_error="skip"), Iterator[int])
    assert_type(holdfast.map(len, names, on_error="return"), Iterator[int | FailedItem[str]])
    holdfast.map(len, names, 2)  # type: ignore[call-overload]


def existing_handlers_of_runtime_error_catch_ours(crashed: WorkerCrashed, init: WorkerInitError) -> None:
    as_worker_errors: list[WorkerError] = [crashed, init]
    as_runtime_errors: list[RuntimeError] = [*as_worker_errors]
    as_ours: list[HoldfastError] = [*as_worker_errors]
    as_warning: type[UserWarning] = HoldfastWarning
    print(as_runtime_errors, as_ours, as_warning)


def a_graph_is_made_and_sampled(edges: torch.Tensor) -> None:
    graph = Graph.from_edges(edges, num_nodes=4, node_features={"x": torch.zeros(4, 2)})
    assert_type(graph, Graph)
    with NeighborLoader(graph, [15, 10], batch_size=2, num_workers=1, on_error="skip") as loader:
        assert_type(loader, NeighborLoader)
    NeighborLoader(graph, [15, 10], output="networkx")  # type: ignore[arg-type]
    assert_type(holdfast.graph.LinkNeighborLoader(graph, [2]), LinkNeighborLoader)


def spawn_gives_a_group_only_if_it_does_not_join(train: Callable[[int, str], None]) -> None:
    assert_type(spawn(train, ("a",), nprocs=2, join=False).pids(), list[int])
    spawn(train, ("a",), 2, True, False, "spawn", timeout=3.0, memory_limit="4GB", max_restarts=1)
    spawn(train, "a")  # type: ignore[call-overload]


def incidents_are_told_to_who_takes_them(alert: Callable[[Incident], None], other: Callable[[int], None]) -> None:
    assert_type(on_incident(alert), Callable[[], None])
    on_incident(other)  # type: ignore[arg-type]


def metrics_are_served_until_they_are_closed(registry: CollectorRegistry) -> None:
    with holdfast.metrics.start(9400, addr="0.0.0.0") as server:
        assert_type(server.port, int)
        assert_type(server.url, str)
    holdfast.metrics.start("9400")  # type: ignore[arg-type]
    registry.register(holdfast.metrics.collector())


def cpus_are_counted() -> None:
    assert_type(available_cpus(), int)
