"""The public API as a type checker sees it. Checked by mypy in strict mode, never run.

A `type: ignore` below marks a mistake that mypy must find: where it finds none, the unused comment is the error.
"""

from typing import assert_type

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, TensorDataset

import holdfast
from holdfast import DataLoader, share
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
