"""`NeighborLoader`: the same batches for any number of workers and after any death, and what becomes of bad seeds."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

from graphs import METHODS, all_equal, edge_set, epochs, featured_graph, how, random_graph, seeded_epochs
from helpers import worker_pids
from holdfast import TooManySkipped, WorkerCrashed
from holdfast.graph import Graph, LinkNeighborLoader, NeighborBatch, NeighborLoader
from holdfast.graph.outputs import Made
from waits import PATIENCE_S


@pytest.mark.parametrize("method", METHODS)
def test_batches_do_not_depend_on_the_workers(method: str) -> None:
    """Two epochs, without workers and with one, two or three of them: bit by bit the same; the epochs differ."""
    graph = featured_graph()
    alone = seeded_epochs(graph, 2, num_workers=0)
    assert not torch.equal(alone[0].e_id, alone[len(alone) // 2].e_id)
    for workers in (1, 2, 3) if method == "fork" else (2,):
        assert all_equal(seeded_epochs(graph, 2, num_workers=workers, **how(method)), alone)


def test_batches_do_not_depend_on_workers_that_stay() -> None:
    """persistent_workers: of unshuffled seeds, what is drawn in the second epoch is what new workers would draw."""
    graph = random_graph()
    alone = seeded_epochs(graph, 2, shuffle=False)
    assert all_equal(seeded_epochs(graph, 2, shuffle=False, num_workers=2, persistent_workers=True), alone)


@pytest.mark.parametrize(
    "options", [{"weighted": True}, {"replace": True}, {"directed": False}, {"num_neighbors": [-1]}]
)
def test_every_way_of_sampling_is_reproducible(options: dict[str, Any]) -> None:
    graph = random_graph(edge_weights=np.arange(3000) % 5)
    assert all_equal(seeded_epochs(graph, num_workers=2, **options), seeded_epochs(graph, **options))


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_is_killed_leaves_no_trace_in_the_batches(method: str) -> None:
    """Killed again and again in mid-epoch: the batches are those of an undisturbed run."""
    graph = featured_graph()
    expected = seeded_epochs(graph, batch_size=8)
    torch.manual_seed(5)
    batches = []
    options = {"batch_size": 8, "shuffle": True, "num_workers": 2, "max_restarts": 100, **how(method)}
    with NeighborLoader(graph, [4, 3], transform=slowly, **options) as loader:
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            batches.append(batch)
            if number % 6 == 1:
                os.kill(worker_pids(iterator)[0], signal.SIGKILL)
        assert loader.stats().restarts > 0
    assert all_equal(batches, expected)


def slowly(batch: NeighborBatch) -> NeighborBatch:
    """So that a kill finds a unit in hand."""
    time.sleep(0.02)
    return batch


def test_seeds_come_first_and_have_their_features() -> None:
    """n_id[:batch_size] are the seeds, in the sampler's order; features are those of the nodes and edges."""
    graph = featured_graph()
    batches = seeded_epochs(graph, num_workers=2, shuffle=False)
    seeds = torch.cat([batch.n_id[: batch.batch_size] for batch in batches])
    assert seeds.tolist() == list(range(300))
    known = edge_set(graph)
    for batch in batches:
        assert torch.equal(batch.x, torch.stack([batch.n_id * 2.0, batch.n_id * 2.0 + 1], 1))
        assert torch.equal(batch.y, batch.n_id % 7)
        assert torch.equal(batch.edge_attr, batch.e_id)
        sources, targets = batch.n_id[batch.edge_index]
        ends = zip(sources.tolist(), targets.tolist(), strict=True)
        assert all(known[number] == pair for number, pair in zip(batch.e_id.tolist(), ends, strict=True))


# -- which seeds -------------------------------------------------------------------------------------------------------


def seeds_of(graph: Graph, **options: Any) -> list[list[int]]:
    batches = epochs(NeighborLoader(graph, [2], **options))
    return [batch.n_id[: batch.batch_size].tolist() for batch in batches]


def test_input_nodes_may_be_given_in_many_ways() -> None:
    """Numbers of any type, a mask, a range; and no others than these."""
    graph = random_graph(50, 200)
    mask = torch.zeros(50, dtype=torch.bool)
    mask[[3, 8, 41]] = True
    ways: list[Any] = [[3, 8, 41], np.array([3, 8, 41], np.uint8), torch.tensor([3, 8, 41]), mask, mask.tolist()]
    for nodes in ways:
        assert seeds_of(graph, input_nodes=nodes, batch_size=2) == [[3, 8], [41]]
    assert seeds_of(graph, input_nodes=range(40, 50, 3), batch_size=3, drop_last=True) == [[40, 43, 46]]
    assert seeds_of(graph, input_nodes=[7, 7, 7], batch_size=3) == [[7, 7, 7]]
    assert seeds_of(graph, input_nodes=[]) == []
    assert seeds_of(graph, input_nodes=[], shuffle=True) == []
    assert sorted(itertools.chain(*seeds_of(graph, shuffle=True, batch_size=7))) == list(range(50))


def test_samplers_give_positions_in_the_input_nodes() -> None:
    """As torch's do: so a DistributedSampler over the input nodes is one of the nodes."""
    graph, nodes = random_graph(50, 200), np.array([5, 10, 15, 20])
    sampler: Any = DistributedSampler(nodes, num_replicas=2, rank=1, shuffle=False)  # type: ignore[arg-type]
    assert seeds_of(graph, input_nodes=nodes, sampler=sampler, batch_size=2) == [[10, 20]]
    batches = BatchSampler(SequentialSampler(nodes), 3, drop_last=False)
    assert seeds_of(graph, input_nodes=nodes, batch_sampler=batches) == [[5, 10, 15], [20]]
    loader = NeighborLoader(graph, [2], nodes, sampler=sampler)
    loader.sampler.set_epoch(3)  # type: ignore[attr-defined]
    assert sampler.epoch == 3
    assert (len(loader), loader.batch_size) == (2, 1)


def test_a_seed_that_is_there_twice_has_its_neighbours_twice() -> None:
    """Each place of the batch has what it needs; that is what a replaced sample makes of a batch."""
    batch = epochs(NeighborLoader(random_graph(), [3], [9, 9], batch_size=2))[0]
    assert batch.n_id[:2].tolist() == [9, 9]
    assert torch.bincount(batch.edge_index[1], minlength=2).tolist() == [3, 3]


# -- bad seeds ---------------------------------------------------------------------------------------------------------

BAD = 16  # the first of its batch of 4 or 8: that it is missing must not change what is drawn for the others
COUNT = 40


@dataclasses.dataclass
class Failing:
    """A transform that fails, in some way, whenever a certain seed is in the batch."""

    fail: Callable[[], None]

    def __call__(self, batch: NeighborBatch) -> NeighborBatch:
        if BAD in batch.n_id[: batch.batch_size]:
            self.fail()
        return batch


def raise_error() -> None:
    raise ValueError("no such neighbourhood")


def die() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    time.sleep(PATIENCE_S)


WAYS = {"raises": raise_error, "dies": die, "hangs": hang}


@pytest.mark.parametrize(
    ("way", "method"),
    [
        ("raises", "fork"),
        pytest.param("hangs", "fork", marks=pytest.mark.long),
        ("hangs", "portable"),
        *(("dies", method) for method in METHODS),
    ],
)
@pytest.mark.filterwarnings("ignore:1 sample listed in skipped_file")
def test_a_seed_that_fails_is_skipped_and_named(way: str, method: str, tmp_path: Path) -> None:
    """However it fails: the others of its batch come, it is named, and the next run does not try it."""
    graph, file = random_graph(COUNT, 400), tmp_path / "bad.jsonl"
    options = {"batch_size": 4, "num_workers": 2, "on_error": "skip", "skipped_file": file, **how(method)}
    if way == "hangs":  # elsewhere a machine that is busy might make one of a good seed
        options["sample_timeout"] = 1.0
    loader = NeighborLoader(graph, [3], transform=Failing(WAYS[way]), **options)
    torch.manual_seed(1)
    batches = epochs(loader)
    assert [sample.index for sample in loader.skipped_samples] == [BAD]
    seeds = [batch.n_id[: batch.batch_size].tolist() for batch in batches]
    assert list(itertools.chain(*seeds)) == [seed for seed in range(COUNT) if seed != BAD]
    again = NeighborLoader(graph, [3], transform=Failing(WAYS[way]), **options)
    torch.manual_seed(1)
    assert all_equal(epochs(again), batches)
    assert not again.incidents
    assert [sample.index for sample in again.skipped_samples] == [BAD]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_seed_that_fails_is_replaced(workers: int) -> None:
    """By another seed of its batch, the same with and without workers; batch sizes stay."""
    graph = random_graph(COUNT, 400)
    loader = NeighborLoader(
        graph, [3], batch_size=8, num_workers=workers, on_error="replace", transform=Failing(raise_error)
    )
    torch.manual_seed(3)
    batches = epochs(loader)
    assert [batch.batch_size for batch in batches] == [8] * 5
    (replaced,) = loader.skipped_samples
    assert (replaced.index, replaced.replaced_by) == (BAD, int(batches[2].n_id[0]))
    assert BAD not in batches[2].n_id[:8]


def test_a_seed_that_kills_is_named_by_the_error() -> None:
    """With on_error="raise", as elsewhere: the epoch goes on with the next batch."""
    graph = random_graph(COUNT, 400)
    with NeighborLoader(graph, [3], batch_size=8, num_workers=2, transform=Failing(die)) as loader:
        iterator, sizes = iter(loader), []
        sizes += [next(iterator).batch_size for _ in range(2)]
        with pytest.raises(WorkerCrashed, match=f"sample {BAD}"):
            next(iterator)
        sizes += [batch.batch_size for batch in iterator]
    assert sizes == [8] * 4


def unchecked_graph(folder: Path) -> Graph:
    """In files, with an edge to the bad seed that comes from nowhere."""
    where = random_graph(COUNT, 400).save_npy(folder)
    indptr, indices = np.load(where["indptr"]), np.load(where["indices"])
    indices[indptr[BAD]] = COUNT + 5
    np.save(where["indices"], indices)
    return Graph.from_npy(**where, check=False)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_is_wrong_costs_the_seeds_that_need_it(workers: int, tmp_path: Path) -> None:
    """An index out of range is an error when it is come across, never a read of memory that is not the graph's."""
    graph = unchecked_graph(tmp_path)
    loader = NeighborLoader(graph, [-1], batch_size=8, num_workers=workers, on_error="skip")
    assert sum(batch.batch_size for batch in epochs(loader)) == COUNT - 1
    (skipped,) = loader.skipped_samples
    assert skipped.index == BAD
    assert f"an edge to node {BAD} comes from node {COUNT + 5}, which is out of range" in skipped.reason
    with pytest.raises(IndexError, match=f"node {COUNT + 5}"):
        epochs(NeighborLoader(graph, [-1], batch_size=8, num_workers=workers))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("end", [10_000, -(2**63)])
def test_an_index_that_is_wrong_in_a_file_is_named(end: int, weighted: bool, tmp_path: Path) -> None:
    """The same for what says which edges are a node's own."""
    where = random_graph(COUNT, 400, edge_weights=np.ones(400)).save_npy(tmp_path)
    indptr = np.load(where["indptr"])
    indptr[BAD + 1] = end
    np.save(where["indptr"], indptr)
    graph = Graph.from_npy(**where, check=False)
    loader = NeighborLoader(graph, [2], batch_size=8, num_workers=1, on_error="skip", weighted=weighted)
    assert sum(batch.batch_size for batch in epochs(loader)) == COUNT - 2
    assert [sample.index for sample in loader.skipped_samples] == [BAD, BAD + 1]
    assert f"indptr says that the edges of node {BAD} are" in loader.skipped_samples[0].reason


def test_a_file_that_is_cut_off_costs_the_seeds_that_need_it(tmp_path: Path) -> None:
    """Reading beyond the end of a mapped file is a bus error: it ends a worker, and the seed that did it is named."""
    page = 4096
    count = 3 * page // 8
    features = np.zeros((count, 1))
    np.save(tmp_path / "x.npy", features)
    where = random_graph(count, 10).save_npy(tmp_path)
    where["node_features"] = {"x": tmp_path / "x.npy"}
    graph = Graph.from_npy(**where)
    os.truncate(tmp_path / "x.npy", 2 * page)  # what the last nodes have lies beyond
    seeds = [0, 1, count - 1, 2]
    loader = NeighborLoader(graph, [], seeds, batch_size=4, num_workers=1, on_error="skip")
    assert [batch.n_id.tolist() for batch in epochs(loader)] == [[0, 1, 2]]
    assert [sample.index for sample in loader.skipped_samples] == [count - 1]
    assert "bus error" in loader.skipped_samples[0].reason


def test_too_many_bad_seeds_end_the_run() -> None:
    """A share of an epoch is one of its seeds, not of its batches."""
    graph = random_graph(COUNT, 400)
    options: dict[str, Any] = {"batch_size": 8, "on_error": "skip", "transform": Failing(raise_error)}
    assert len(epochs(NeighborLoader(graph, [3], max_skipped=1 / COUNT, **options))) == 5
    with pytest.raises(TooManySkipped):
        epochs(NeighborLoader(graph, [3], max_skipped=0.5 / COUNT, **options))


# -- what is delivered -------------------------------------------------------------------------------------------------


@pytest.mark.long  # importing PyG takes seconds
@pytest.mark.parametrize("workers", [0, 2])
def test_pyg_batches_follow_its_conventions(workers: int) -> None:
    """`Data` with n_id, e_id, batch_size, relabelled edge_index and the features by name."""
    data_class = pytest.importorskip("torch_geometric.data").Data
    graph = featured_graph()
    plain = seeded_epochs(graph, num_workers=workers)
    for data, batch in zip(seeded_epochs(graph, num_workers=workers, output="pyg"), plain, strict=True):
        assert type(data) is data_class
        for name in ("n_id", "e_id", "edge_index", "x", "y", "edge_attr"):
            assert torch.equal(data[name], getattr(batch, name))
        assert (data.batch_size, data.num_nodes) == (batch.batch_size, len(batch.n_id))
        assert data.num_sampled_nodes == batch.num_sampled_nodes
        assert data.num_sampled_edges == batch.num_sampled_edges
        assert data.validate(raise_on_error=True)


def name_of(data: Any) -> str:
    return type(data).__name__


@pytest.mark.long
def test_workers_send_plain_tensors_unless_user_code_wants_more() -> None:
    """What PyG's batches are made of travels; with a collate function or transform of the user's, that gets `Data`."""
    pytest.importorskip("torch_geometric")
    sent = pickle.dumps(Made(seeded_epochs(featured_graph())[0], "pyg"))
    assert b"torch_geometric" not in sent
    assert name_of(pickle.loads(sent)) == "Data"
    for wanted in ({"collate_fn": name_of}, {"transform": name_of}):
        assert seeded_epochs(random_graph(), num_workers=1, batch_size=300, output="pyg", **wanted) == ["Data"]


def test_a_batch_can_be_moved_and_printed() -> None:
    batch = seeded_epochs(featured_graph())[0]
    double = batch.to(torch.device("cpu"))
    assert all_equal([double], [batch])
    assert repr(batch).startswith("NeighborBatch(batch_size=32, nodes=")
    assert all_equal([pickle.loads(pickle.dumps(batch))], [batch])
    with pytest.raises(AttributeError, match="no 'z'"):
        batch.z  # noqa: B018


def test_a_default_device_changes_nothing() -> None:
    """torch.set_default_device is for the user's own tensors."""
    seeds, features = [3, 4], {"x": torch.arange(300.0)}
    torch.manual_seed(1)
    plain = NeighborLoader(random_graph(node_features=features), [4, 3]).dataset[seeds]
    torch.manual_seed(1)
    with torch.device("meta"):
        batch = NeighborLoader(random_graph(node_features=features), [4, 3]).dataset[seeds]
        links = LinkNeighborLoader(random_graph(), [2], neg_sampling_ratio=1.0).dataset[seeds]
    assert all_equal([batch], [plain])
    assert links.edge_label.tolist() == [1, 1, 0, 0]


def test_batches_outlive_the_loader() -> None:
    """They lie in slots that are not used again while anything of them is held."""
    graph = featured_graph()
    kept = seeded_epochs(graph, 3, num_workers=2, batch_size=8)
    assert all_equal(kept, seeded_epochs(graph, 3, batch_size=8))


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "no graph": (TypeError, "Graph.from_edges, from_scipy", {"graph": None}),
    "one number": (TypeError, "a number for each hop, not 5", {"num_neighbors": 5}),
    "text": (TypeError, "a number for each hop", {"num_neighbors": "ab"}),
    "broken number": (TypeError, "whole numbers, not 2.5", {"num_neighbors": [2.5]}),
    "a flag": (ValueError, "num_neighbors has True", {"num_neighbors": [True]}),
    "less than all": (ValueError, "num_neighbors has -2", {"num_neighbors": [-2]}),
    "more than there can be": (ValueError, "from 0 to 2147483647", {"num_neighbors": [2**31]}),
    "no weights": (ValueError, "edge_weights=", {"weighted": True}),
    "number for a flag": (TypeError, "replace must be True or False", {"replace": 1}),
    "seed out of range": (IndexError, r"input_nodes\[1\] is 300", {"input_nodes": [0, 300]}),
    "negative seed": (IndexError, r"input_nodes\[0\] is -1", {"input_nodes": [-1]}),
    "seeds that are no numbers": (TypeError, "whole numbers", {"input_nodes": [0.5]}),
    "short mask": (ValueError, r"the shape \(300,\)", {"input_nodes": np.ones(7, bool)}),
    "one seed": (ValueError, "1 dimension", {"input_nodes": 3}),
    "unknown output": (ValueError, "'tensors', 'pyg', 'dgl'", {"output": "networkx"}),
    "no batches": (ValueError, "batch_size must be a number", {"batch_size": None}),
    "a dataset": (TypeError, "the graph is in its place", {"dataset": [1]}),
    "two orders": (ValueError, "mutually exclusive with shuffle", {"sampler": [0], "shuffle": True}),
    "two sizes": (ValueError, "batch_sampler option is mutually exclusive", {"batch_sampler": [[0]], "batch_size": 2}),
    "unknown argument": (TypeError, "batchsize", {"batchsize": 2}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_refused(case: str) -> None:
    error, says, options = REFUSED[case]
    with pytest.raises(error, match=says):
        NeighborLoader(**{"graph": random_graph(), "num_neighbors": [2], **options})


def test_a_sampler_that_gives_no_position_is_told_so() -> None:
    with pytest.raises(IndexError, match="gave 3, but there are 2 input nodes"):
        epochs(NeighborLoader(random_graph(), [2], [7, 8], sampler=[0, 3]))


@pytest.mark.parametrize("fanouts", [[], [0], [3, 3], [-1, -1], [2**31 - 1]])
@pytest.mark.parametrize("options", [{}, {"directed": False}, {"weighted": True}, {"weighted": True, "replace": True}])
def test_nothing_to_sample_is_no_error(fanouts: list[int], options: dict[str, Any]) -> None:
    """A graph without nodes, without edges, or with nothing but a loop; edges whose weights are all zero."""
    if options.get("replace"):
        fanouts = [min(fanout, 5) for fanout in fanouts]
    nothing = Graph.from_edges(([], []), edge_weights=[])
    assert epochs(NeighborLoader(nothing, fanouts, **options)) == []
    nodes = Graph.from_edges(([], []), num_nodes=3, edge_weights=[])
    loop = Graph.from_edges(([0], [0]), num_nodes=3, edge_weights=[1])
    zero = Graph.from_edges(([0, 1], [2, 2]), edge_weights=[0, 0])
    for graph in (nodes, loop, zero):
        (batch,) = epochs(NeighborLoader(graph, fanouts, batch_size=3, **options))
        assert batch.n_id.tolist() == [0, 1, 2]
        assert (len(batch.e_id) == 0) or graph is not nodes
