"""Making a graph: the same one from every source, handles to other processes, and errors that name what is wrong."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch

from graphs import edge_set, featured_graph, random_graph
from holdfast.graph import Graph
from holdfast.sharing.arrays import find_array, find_tensor
from waits import PATIENCE_S

# Node 3 has no edge, 2 -> 2 is a loop, 0 -> 1 is there twice.
SOURCES, TARGETS = [0, 2, 0, 1, 2], [1, 0, 1, 0, 2]
WEIGHTS = [1.0, 0.0, 2.5, 3.0, 4.0]
EDGES = dict(enumerate(zip(SOURCES, TARGETS, strict=True)))


def weights_of(graph: Graph) -> dict[int, float]:
    topology = graph.topology
    assert topology.edge_weights is not None
    numbers = topology.ids_of(np.arange(graph.num_edges))
    return dict(zip(numbers.tolist(), topology.edge_weights.tolist(), strict=True))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64, ">i4"])
def test_edges_of_any_integers(kind: Any) -> None:
    """Signed or not, of any size and byte order, as a pair or as one array, in one piece or not."""
    pair = np.array([SOURCES, TARGETS], kind)
    scattered = np.asfortranarray(np.repeat(pair, 2, axis=1))[:, ::2]
    for edges in (pair, (pair[0], pair[1]), scattered):
        graph = Graph.from_edges(edges, num_nodes=4, edge_weights=WEIGHTS)
        assert edge_set(graph) == EDGES
        assert weights_of(graph) == dict(enumerate(WEIGHTS))
    assert graph.in_degrees().tolist() == [2, 2, 1, 0]


def test_edges_as_lists_and_tensors() -> None:
    ways: list[Any] = [(SOURCES, TARGETS), [SOURCES, TARGETS], torch.tensor([SOURCES, TARGETS])]
    for edges in ways:
        assert edge_set(Graph.from_edges(edges, num_nodes=4)) == EDGES


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.bool])
def test_weights_of_any_numbers(kind: torch.dtype) -> None:
    """Also of types that numpy does not have."""
    weights = torch.tensor([1, 0, 1, 1, 1]).to(kind)
    graph = Graph.from_edges((SOURCES, TARGETS), edge_weights=weights)
    assert weights_of(graph) == dict(enumerate([1, 0, 1, 1, 1]))


def test_degrees_of_some_nodes() -> None:
    graph = Graph.from_edges((SOURCES, TARGETS), num_nodes=4)
    assert graph.in_degrees([3, 0]).tolist() == [0, 2]
    for node in (-1, 4):
        with pytest.raises(IndexError, match=f"nodes\\[0\\] is {node}"):
            graph.in_degrees([node])
        with pytest.raises(IndexError, match=f"node {node} is out of range"):
            graph.in_edges(node)


def test_how_many_nodes_there_are() -> None:
    """As many as are said; else as many as have features; else up to the last that has an edge."""
    edges = SOURCES, TARGETS
    assert Graph.from_edges(edges).num_nodes == 3
    assert Graph.from_edges(edges, node_features={"x": torch.zeros(9, 2)}).num_nodes == 9
    assert Graph.from_edges(edges, num_nodes=5).num_nodes == 5
    empty = Graph.from_edges(([], []))
    assert (empty.num_nodes, empty.num_edges) == (0, 0)
    assert Graph.from_edges(([], []), num_nodes=3).in_degrees().tolist() == [0, 0, 0]


def test_compressed_arrays() -> None:
    matrix = scipy.sparse.coo_array((WEIGHTS, (SOURCES, TARGETS)), shape=(4, 4)).tocsr()
    by_source = Graph.from_csr(matrix.indptr, matrix.indices, edge_weights=matrix.data)
    assert set(edge_set(by_source).values()) == set(EDGES.values())
    by_target = matrix.tocsc()
    graph = Graph.from_csc(by_target.indptr, by_target.indices, edge_ids=[3, 2, 1, 0])
    assert sorted(edge_set(graph).values()) == sorted(edge_set(by_source).values())
    assert graph.in_edges(0)[1].tolist() == [3, 2]


@pytest.mark.parametrize("form", ["coo_array", "csr_array", "csc_array", "csr_matrix", "lil_array"])
def test_scipy(form: str) -> None:
    """Row u, column v is an edge from u to v; of entries that are there twice both are, where the form has them."""
    plain = scipy.sparse.coo_array((WEIGHTS, (SOURCES, TARGETS)), shape=(4, 4))
    matrix = plain if form == "coo_array" else getattr(scipy.sparse, form)(plain)
    graph = Graph.from_scipy(matrix, weighted=True)
    assert graph.num_nodes == 4
    assert set(edge_set(graph).values()) <= set(EDGES.values())
    assert sum(weights_of(graph).values()) == sum(WEIGHTS)
    if form == "coo_array":
        assert edge_set(graph) == EDGES


@pytest.mark.long  # importing PyG takes seconds
def test_pyg() -> None:
    """Everything with a row for each node or edge comes along, and nothing else."""
    data_class = pytest.importorskip("torch_geometric.data").Data
    data = data_class(edge_index=torch.tensor([SOURCES, TARGETS]), x=torch.rand(4, 2), name="toy", one=torch.rand(1))
    data.train_mask, data.edge_attr = torch.tensor([True, False, True, True]), torch.tensor(WEIGHTS)
    graph = Graph.from_pyg(data, edge_weights="edge_attr")
    assert edge_set(graph) == EDGES
    assert weights_of(graph) == dict(enumerate(WEIGHTS))
    assert (sorted(graph.node_features), sorted(graph.edge_features)) == (["train_mask", "x"], ["edge_attr"])
    with pytest.raises(KeyError, match="'edge_attr'"):
        Graph.from_pyg(data, edge_weights="w")
    with pytest.raises(ValueError, match="no edge_index"):
        Graph.from_pyg(data_class(x=torch.rand(4, 2)))
    with pytest.raises(ValueError, match="to_homogeneous"):
        Graph.from_pyg(pytest.importorskip("torch_geometric.data").HeteroData())


@pytest.mark.long
def test_pyg_with_links_to_learn_from() -> None:
    """As RandomLinkSplit leaves it: as many of them as there are edges, which makes them no features of these."""
    data_class = pytest.importorskip("torch_geometric.data").Data
    edges = torch.tensor([SOURCES, TARGETS])
    data = data_class(edge_index=edges, edge_attr=torch.rand(5), num_nodes=4)
    data.edge_label_index, data.edge_label, data.other_edge_index = edges.flip(0), torch.ones(5), edges
    data.edge_index_of_before = torch.arange(5)
    graph = Graph.from_pyg(data)
    assert edge_set(graph) == EDGES
    assert sorted(graph.edge_features) == ["edge_attr", "edge_index_of_before"]


class DglLike:
    """What `from_dgl` asks of a DGL graph. (DGL itself is installed for the benchmarks only.)"""

    is_homogeneous = True

    def __init__(self) -> None:
        self.ndata = {"feat": torch.rand(4, 2), "_ID": torch.arange(4)}
        self.edata = {"w": torch.tensor(WEIGHTS)}

    def num_nodes(self) -> int:
        return 4

    def edges(self, order: str) -> tuple[torch.Tensor, torch.Tensor]:
        assert order == "eid"
        return torch.tensor(SOURCES), torch.tensor(TARGETS)


def test_dgl() -> None:
    graph = Graph.from_dgl(DglLike(), edge_weights="w")
    assert edge_set(graph) == EDGES
    assert weights_of(graph) == dict(enumerate(WEIGHTS))
    assert (list(graph.node_features), list(graph.edge_features)) == (["feat"], ["w"])
    several = DglLike()
    several.is_homogeneous = False
    with pytest.raises(ValueError, match="to_homogeneous"):
        Graph.from_dgl(several)


@pytest.mark.parametrize("kind", [networkx.MultiDiGraph, networkx.DiGraph, networkx.MultiGraph, networkx.Graph])
def test_networkx(kind: Any) -> None:
    """Nodes are numbered in their order, whatever they are called; an undirected edge becomes two, a loop stays one."""
    named = kind()
    named.add_nodes_from("abcd", x=[1.0, 2.0])
    for source, target, weight in zip(SOURCES, TARGETS, WEIGHTS, strict=True):
        named.add_edge("abcd"[source], "abcd"[target], weight=weight)
    graph = Graph.from_networkx(named, edge_weights="weight", node_features=["x"], edge_features=["weight"])
    expected = [("abcd".index(u), "abcd".index(v)) for u, v in named.edges()]
    if not named.is_directed():
        expected += [(v, u) for u, v in expected if u != v]
    assert sorted(edge_set(graph).values()) == sorted(expected)
    assert graph.node_features["x"].shape == (4, 2)
    with pytest.raises(KeyError, match="'colour'"):
        Graph.from_networkx(named, node_features=["colour"])


def test_files_are_mapped(tmp_path: Path) -> None:
    """What was saved is the same graph, on memory that is not in any segment; it may be saved over itself."""
    graph = featured_graph(edge_weights=np.arange(3000) % 3)
    where = graph.save_npy(tmp_path / "graph")
    again = Graph.from_npy(**where)
    again.save_npy(tmp_path / "graph")
    assert edge_set(again) == edge_set(graph)
    assert weights_of(again) == weights_of(graph)
    assert isinstance(again.topology.indices, np.memmap)
    assert np.array_equal(again.node_features["x"], graph.node_features["x"])


# -- where it lies, and how it travels ---------------------------------------------------------------------------------


def test_everything_lies_in_one_segment() -> None:
    graph = featured_graph(edge_weights=np.ones(3000))
    arrays = [array for array in vars(graph.topology).values() if array is not None]
    places = [find_array(array) for array in arrays]
    places += [find_tensor(tensor) for tensor in (*graph.node_features.values(), *graph.edge_features.values())]
    assert len(arrays) == 4
    assert len({place[0].handle for place in places if place is not None}) == 1
    assert None not in places
    assert not any(array.flags.writeable for array in arrays)


def test_a_mapped_graph_travels_as_the_names_of_its_files(tmp_path: Path) -> None:
    where = random_graph(1000, 50_000).save_npy(tmp_path)
    graph = Graph.from_npy(**where)
    data = pickle.dumps(graph)
    assert len(data) < 2000
    assert edge_set(pickle.loads(data)) == edge_set(graph)
    np.save(where["indices"], np.zeros(5, np.int32))
    with pytest.raises(ValueError, match="has changed since"):
        pickle.loads(data)


def test_a_pickle_in_a_file_has_the_graph_in_it() -> None:
    graph = featured_graph()
    again = pickle.loads(pickle.dumps(graph))
    assert edge_set(again) == edge_set(graph)
    assert torch.equal(again.node_features["x"], graph.node_features["x"])
    assert not again.topology.indices.flags.writeable


def test_a_graph_says_what_it_has() -> None:
    assert repr(featured_graph()) == (
        "Graph(num_nodes=300, num_edges=3000, x=float32[300, 2], y=int64[300], edge_attr=int64[3000])"
    )


# -- what is refused ---------------------------------------------------------------------------------------------------

EDGE_ARRAY = np.array([SOURCES, TARGETS])
REFUSED: dict[str, tuple[type[Exception], str, Any]] = {
    "out of range": (IndexError, r"edges\[0\]\[1\] is 2, .* there are 2 nodes", {"num_nodes": 2}),
    "negative": (IndexError, r"edges\[1\]\[0\] is -1, which is negative", {"edges": ([0], [-1])}),
    "beyond int64": (IndexError, "18446744073709551615", {"edges": np.full((2, 1), 2**64 - 1, np.uint64)}),
    "floats": (TypeError, r"must be whole numbers, not float64\n  try   ", {"edges": EDGE_ARRAY.astype(float)}),
    "booleans": (TypeError, r"numpy.flatnonzero", {"edges": EDGE_ARRAY > 1}),
    "transposed": (ValueError, r"edges.T", {"edges": EDGE_ARRAY.T}),
    "three rows": (ValueError, r"\(2, edges\)", {"edges": np.zeros((3, 4), int)}),
    "unequal": (ValueError, "2 sources, but 1 targets", {"edges": ([0, 1], [0])}),
    "nested": (ValueError, "1 dimension", {"edges": ([[0]], [[0]])}),
    "no edges at all": (TypeError, "not NoneType", {"edges": None}),
    "text": (TypeError, "not str", {"edges": "ab"}),
    "negative count": (ValueError, "num_nodes must not be negative", {"num_nodes": -1}),
    "broken count": (TypeError, "num_nodes must be a whole number", {"num_nodes": 4.5}),
    "NaN weight": (ValueError, r"edge_weights\[2\] is nan", {"edge_weights": [1, 1, np.nan, 1, 1]}),
    "infinite weight": (ValueError, r"edge_weights\[0\] is inf", {"edge_weights": [np.inf, 1, 1, 1, 1]}),
    "negative weight": (ValueError, r"edge_weights\[4\] is -1", {"edge_weights": [1, 1, 1, 1, -1]}),
    "few weights": (ValueError, r"each of 5 edges, not the shape \(2,\)", {"edge_weights": [1, 2]}),
    "weights of text": (TypeError, "must be numbers", {"edge_weights": list("abcde")}),
    "few features": (ValueError, r"each of 4 nodes", {"num_nodes": 4, "node_features": {"x": torch.zeros(3, 1)}}),
    "scalar feature": (ValueError, r"each of 5 edges", {"edge_features": {"w": 3.0}}),
    "sparse feature": (TypeError, "dense", {"num_nodes": 4, "node_features": {"x": torch.eye(4).to_sparse()}}),
    "feature of objects": (TypeError, "must be numbers", {"num_nodes": 4, "node_features": {"x": list("abcd")}}),
    "feature of no type of torch's": (
        TypeError,
        r"node_features\['x'\] must be numbers, of a type that torch has",
        {"num_nodes": 4, "node_features": {"x": np.zeros(4, np.longdouble)}},
    ),
    "no dict": (TypeError, "must be a dict", {"node_features": torch.zeros(4)}),
    "taken name": (ValueError, "'n_id' is something else", {"num_nodes": 4, "node_features": {"n_id": torch.zeros(4)}}),
    "name of a method": (
        ValueError,
        "'to' is something else",
        {"num_nodes": 4, "node_features": {"to": torch.zeros(4)}},
    ),
    "feature without rows": (ValueError, "each of 3 nodes", {"node_features": {"x": torch.tensor(3)}}),
    "odd name": (ValueError, "'a b' cannot be the name", {"num_nodes": 4, "node_features": {"a b": torch.zeros(4)}}),
    "one name twice": (
        ValueError,
        "'x' is in both",
        {"num_nodes": 4, "node_features": {"x": torch.zeros(4)}, "edge_features": {"x": torch.zeros(5)}},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_with_its_place(case: str) -> None:
    error, says, options = REFUSED[case]
    with pytest.raises(error, match=says):
        Graph.from_edges(**{"edges": EDGE_ARRAY, **options})


COMPRESSED: dict[str, tuple[type[Exception], str, Any, Any]] = {
    "empty": (ValueError, "indptr is empty", [], []),
    "late start": (ValueError, "start with 0", [1, 2], [0, 0]),
    "early end": (ValueError, "end with the number of edges, 2, not 0 and 1", [0, 1], [0, 0]),
    "decreasing": (ValueError, r"indptr\[2\] is less than indptr\[1\]", [0, 2, 1, 3], [0, 0, 0]),
    "out of range": (IndexError, r"indices\[1\] is 7", [0, 2], [0, 7]),
}


def test_an_indptr_that_goes_all_the_way_round_is_refused() -> None:
    """Each of its steps, as an int32, is one upwards."""
    most = 2**31 - 1
    with pytest.raises(ValueError, match=r"indptr\[2\] is less than indptr\[1\]"):
        Graph.from_csc(np.array([0, most, -most - 1, -1, 3], np.int32), [0, 0, 0])


@pytest.mark.parametrize("case", COMPRESSED)
def test_bad_compressed_arrays_are_refused(case: str, tmp_path: Path) -> None:
    """The same in memory and in files."""
    error, says, indptr, indices = COMPRESSED[case]
    for make in (Graph.from_csc, Graph.from_csr):
        with pytest.raises(error, match=says):
            make(indptr, indices)
    np.save(tmp_path / "indptr.npy", np.array(indptr, np.int64))
    np.save(tmp_path / "indices.npy", np.array(indices, np.int64))
    with pytest.raises(error, match=says):
        Graph.from_npy(tmp_path / "indptr.npy", tmp_path / "indices.npy")


def test_bad_files_are_refused(tmp_path: Path) -> None:
    """Of the wrong type, shape, order or kind, cut off, or not there."""
    where = random_graph(20, 60).save_npy(tmp_path / "good")

    def refuse(error: type[Exception], says: str, **options: Any) -> None:
        with pytest.raises(error, match=says):
            Graph.from_npy(**{**where, **options})

    def saved(name: str, array: Any) -> Path:
        np.save(tmp_path / name, array, allow_pickle=True)
        return tmp_path / name

    refuse(TypeError, "indptr must be int64", indptr=saved("a.npy", np.zeros(21, np.int32)))
    refuse(TypeError, "indices must be int32 or int64", indices=saved("b.npy", np.zeros(60)))
    refuse(ValueError, r"the shape \(60,\)", edge_weights=saved("c.npy", np.zeros(3)))
    refuse(ValueError, "in C order", node_features={"x": saved("d.npy", np.asfortranarray(np.zeros((20, 3))))})
    refuse(ValueError, "byte order", node_features={"x": saved("e.npy", np.zeros((20, 3), ">f4"))})
    refuse(ValueError, "cannot be mapped", node_features={"x": saved("f.npy", np.array([{}] * 20))})
    refuse(ValueError, "each of 20 nodes", node_features={"x": saved("g.npy", np.zeros(19))})
    refuse(ValueError, "that torch has", node_features={"x": saved("k.npy", np.zeros(20, np.longdouble))})
    np.savez(tmp_path / "h.npz", x=np.zeros(20))
    refuse(ValueError, "several arrays", node_features={"x": tmp_path / "h.npz"})
    (tmp_path / "i.npy").write_bytes(b"")
    refuse(ValueError, "cannot be mapped", indices=tmp_path / "i.npy")
    (tmp_path / "j.npy").write_bytes(Path(where["indices"]).read_bytes()[:-8])
    refuse(ValueError, "cannot be mapped", indices=tmp_path / "j.npy")
    refuse(FileNotFoundError, "nowhere.npy", indices=tmp_path / "nowhere.npy")


@pytest.mark.parametrize("source", ["from_scipy", "from_dgl", "from_pyg", "from_networkx"])
def test_what_is_of_another_kind_is_refused(source: str) -> None:
    with pytest.raises(TypeError, match=f"{source} takes a"):
        getattr(Graph, source)(object())


@pytest.mark.long  # starts an interpreter
def test_without_numba_a_graph_can_be_made_and_the_loader_says_what_to_install() -> None:
    """The extra is needed for sampling only, and the error names it."""
    program = """
        import sys
        sys.modules["numba"] = None
        import holdfast
        from holdfast.graph import Graph
        assert Graph.from_edges(([0], [1])).num_edges == 1
        try:
            holdfast.graph.NeighborLoader
        except ImportError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "pip install 'torch-holdfast[graph]'" in done.stdout


@pytest.mark.long  # compiles
def test_a_damaged_cache_is_named_with_the_remedy(tmp_path: Path) -> None:
    """Numba says only that a pickle was cut off."""
    program = """
        import sys
        from pathlib import Path
        from holdfast.graph import Graph, NeighborLoader
        NeighborLoader(Graph.from_edges(([0], [1])), [1])
        for index in Path(sys.argv[1]).rglob("*.nbi"):
            index.write_bytes(index.read_bytes()[:20])
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    options: Any = {"capture_output": True, "text": True, "timeout": PATIENCE_S}
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    assert subprocess.run(command, check=False, env=environment, **options).returncode == 0
    done = subprocess.run(command, check=False, env=environment, **options)
    assert f"numba's cache is damaged\n  try   rm -r {tmp_path}" in done.stderr
