"""`NeighborLoader`: holdfast's loader over the neighbourhoods of a graph.

    input_nodes ──sampler──► lists of seeds ──DataLoader──► Neighborhoods[seeds], in a worker ──► a batch

It is `holdfast.DataLoader` with a dataset that makes whole batches: all that holds for samples there, of errors,
deaths, deadlines and limits, holds for seed nodes here. Runs in: main process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch.utils.data import RandomSampler, Sampler, SequentialSampler

from holdfast.graph import outputs
from holdfast.graph.dataset import Neighborhoods, as_it_is
from holdfast.graph.graph import Graph
from holdfast.graph.outputs import Delivery
from holdfast.graph.sampling import Settings
from holdfast.graph.seeds import NodesOf, input_nodes_of
from holdfast.graph.warming import compile_for
from holdfast.loader.dataloader import DataLoader

Output = Literal["tensors", "pyg", "dgl"]


class BatchwiseLoader(DataLoader[Any]):
    """A loader whose dataset is given a whole list from the batch sampler, and makes the batch of it.

    To torch's loader that is `batch_size=None`, with the batch sampler in the sampler's place. Here `batch_size`,
    `sampler` and `batch_sampler` are what they are in any other loader.
    """

    @property
    def _auto_collation(self) -> bool:
        return False

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler


class NeighborLoader(BatchwiseLoader):
    """Batches of seed nodes with sampled neighbourhoods, from one graph that all workers share.

    Args:
        graph: what to sample from.
        num_neighbors: how many neighbours to take of each node, for each hop from the seeds on; -1: all of them.
        input_nodes: the seed nodes of an epoch: numbers, or a mask; None: all nodes.
        batch_size, shuffle, drop_last, sampler, batch_sampler: as in torch. A sampler gives positions in `input_nodes`.
        replace: whether a neighbour may be taken more than once.
        directed: False: give all edges between the nodes that were sampled, not only those they were reached by.
        weighted: take neighbours by the graph's edge weights. Those of weight zero are never taken.
        output: "tensors": `NeighborBatch`; "pyg": PyG's `Data`; "dgl": (input nodes, output nodes, blocks).
        transform: called, in the worker, with each batch; what it returns is delivered.
        rng: "sample", unlike elsewhere: what is drawn depends on seed, epoch and position only.
        arguments: all others of `holdfast.DataLoader`.
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: Any,
        input_nodes: Any = None,
        *,
        batch_size: int = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        drop_last: bool = False,
        replace: bool = False,
        directed: bool = True,
        weighted: bool = False,
        output: Output = "tensors",
        transform: Callable[[Any], Any] | None = None,
        generator: torch.Generator | None = None,
        rng: Literal["worker", "sample"] = "sample",
        **arguments: Any,
    ) -> None:
        settings = settings_of(
            graph, num_neighbors, replace=replace, directed=directed, weighted=weighted, output=output
        )
        nodes = input_nodes_of(input_nodes, graph.num_nodes)
        self.graph, self.num_neighbors, self.input_nodes = graph, list(settings.fanouts), nodes
        self.replace, self.directed, self.weighted = replace, directed, weighted
        self.output, self.transform = output, transform
        delivery = Delivery(output, transform, is_made_here=arguments.get("collate_fn") is not None)
        dataset = Neighborhoods(graph, settings, delivery)
        compile_for(dataset.sampler)
        complete(arguments)
        super().__init__(
            dataset,
            **seeds_from(nodes, batch_size, shuffle, sampler, batch_sampler, drop_last, generator),
            generator=generator,
            rng=rng,
            **arguments,
        )


def settings_of(
    graph: Graph, num_neighbors: Any, *, replace: bool, directed: bool, weighted: bool, output: str
) -> Settings:
    """What is asked for, checked."""
    if not isinstance(graph, Graph):
        raise TypeError(
            f"graph must be a holdfast.graph.Graph, not {type(graph).__name__}\n"
            "  try   Graph.from_edges, from_scipy, from_dgl, from_pyg, from_networkx or from_npy"
        )
    outputs.check_output(output)
    return Settings.checked(
        num_neighbors,
        replace=replace,
        directed=directed,
        weighted=weighted,
        layered=output == "dgl",
        topology=graph.topology,
    )


def complete(arguments: dict[str, Any]) -> None:
    """Arguments of `holdfast.DataLoader` that have another default here."""
    if "dataset" in arguments:
        raise TypeError("there is no argument 'dataset': the graph is in its place")
    if arguments.get("collate_fn") is None:
        arguments["collate_fn"] = as_it_is


def seeds_from(  # noqa: PLR0917
    nodes: Any,
    batch_size: int,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
    generator: torch.Generator | None,
) -> dict[str, Any]:
    """The arguments of torch's loader that say which samples come when; what does not go together it says itself."""
    if batch_size is None:
        raise ValueError("batch_size must be a number: a batch is what is sampled, and a single seed is a batch of one")
    if batch_sampler is not None:
        together = {"batch_size": batch_size, "shuffle": shuffle, "sampler": sampler, "drop_last": drop_last}
        return {"batch_sampler": NodesOf(batch_sampler, nodes), **together}
    if sampler is not None and shuffle:
        return {"sampler": sampler, "shuffle": shuffle}  # refused, in torch's words
    if sampler is None:
        is_shuffled = shuffle and len(nodes) > 0
        sampler = RandomSampler(nodes, generator=generator) if is_shuffled else SequentialSampler(nodes)
    return {"sampler": NodesOf(sampler, nodes), "batch_size": batch_size, "drop_last": drop_last}
