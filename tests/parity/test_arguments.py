"""Construction: the same mistakes give the same errors, every argument is an attribute, and a loader can be rebuilt."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data import DataLoader as TorchLoader

from holdfast import DataLoader as HoldfastLoader

from .compare import differences
from .datasets import Keyed, MapDataset, as_list, vector
from .scenarios import Scenario, assert_parity, run
from .streams import Replicated, Uneven
from .workers import draw_first

LOADERS = [pytest.param(TorchLoader, id="torch"), pytest.param(HoldfastLoader, id="holdfast")]


def _numbers() -> range:
    return range(7)


def _uneven() -> Uneven:
    return Uneven(2, 2)


MISTAKES: dict[str, tuple[Callable[[], Any], Mapping[str, Any]]] = {
    "negative num_workers": (_numbers, {"num_workers": -1}),
    "negative timeout": (_numbers, {"timeout": -1}),
    "negative timeout, with workers": (_numbers, {"timeout": -0.5, "num_workers": 2}),
    "prefetch_factor without workers": (_numbers, {"prefetch_factor": 2}),
    "negative prefetch_factor": (_numbers, {"prefetch_factor": -1, "num_workers": 2}),
    "persistent without workers": (_numbers, {"persistent_workers": True}),
    "shuffle of a stream": (_uneven, {"shuffle": True}),
    "shuffle of a stream, wrong type": (_uneven, {"shuffle": "yes"}),
    "sampler of a stream": (_uneven, {"sampler": [1, 2]}),
    "batch_sampler of a stream": (_uneven, {"batch_sampler": [[1, 2]]}),
    "sampler and shuffle": (_numbers, {"sampler": [1], "shuffle": True}),
    "batch_sampler and batch_size": (_numbers, {"batch_sampler": [[1]], "batch_size": 2}),
    "batch_sampler and batch_size None": (_numbers, {"batch_sampler": [[1]], "batch_size": None}),
    "batch_sampler and shuffle": (_numbers, {"batch_sampler": [[1]], "shuffle": True}),
    "batch_sampler and sampler": (_numbers, {"batch_sampler": [[1]], "sampler": [1]}),
    "batch_sampler and drop_last": (_numbers, {"batch_sampler": [[1]], "drop_last": True}),
    "drop_last without batches": (_numbers, {"batch_size": None, "drop_last": True}),
    "batch_size 0": (_numbers, {"batch_size": 0}),
    "negative batch_size": (_numbers, {"batch_size": -3, "num_workers": 2}),
    "batch_size of a wrong type": (_numbers, {"batch_size": 2.5}),
    "batch_size True": (_numbers, {"batch_size": True}),
    "drop_last of a wrong type": (_numbers, {"drop_last": 3}),
    "unknown start method": (_numbers, {"multiprocessing_context": "teleport", "num_workers": 1}),
    "context of a wrong type": (_numbers, {"multiprocessing_context": 3, "num_workers": 1}),
    "context without workers": (_numbers, {"multiprocessing_context": "fork"}),
    "num_workers of a wrong type": (_numbers, {"num_workers": "two"}),
    "timeout of a wrong type": (_numbers, {"timeout": "long"}),
    "shuffle of nothing": (list, {"shuffle": True}),
    "shuffle of what has no length": (lambda: MapDataset(vector, -1), {"shuffle": True}),
    "shuffle of None": (lambda: None, {"shuffle": True}),
    "unknown argument": (_numbers, {"prefetch": 2}),
    "dataset twice": (_numbers, {"dataset": [1]}),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_same_mistake_gives_the_same_error(name: str) -> None:
    """Type and text, at construction."""
    dataset, arguments = MISTAKES[name]
    scenario = Scenario(name, dataset, arguments, takes=())
    assert_parity(scenario)


def test_most_mistakes_above_are_errors_at_construction() -> None:
    """The table is not equal for want of errors."""
    outcomes = [run(TorchLoader, Scenario(name, *case, takes=(), asks_length=False)) for name, case in MISTAKES.items()]
    assert sum(outcome.construction is not None for outcome in outcomes) >= len(MISTAKES) - 2


@pytest.mark.parametrize("loader_class", LOADERS)
def test_wrong_numbers_of_positional_arguments_are_type_errors(loader_class: type[Any]) -> None:
    """As in torch, thirteen arguments may be positional and the rest are keyword-only."""
    with pytest.raises(TypeError):
        loader_class()
    with pytest.raises(TypeError):
        loader_class(range(3), *([None] * 20))


def test_the_signature_begins_with_torchs() -> None:
    """Every torch argument: same name, order, kind and default; ours come after and are keyword-only."""
    theirs = inspect.signature(TorchLoader.__init__).parameters
    ours = inspect.signature(HoldfastLoader.__init__).parameters
    positional = [p for p in theirs.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert [(p.name, p.kind, p.default) for p in ours.values()][: len(positional)] == [
        (p.name, p.kind, p.default) for p in positional
    ]
    for name, parameter in theirs.items():
        assert (ours[name].kind, ours[name].default) == (parameter.kind, parameter.default)
    for name in ours.keys() - theirs.keys():
        assert ours[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert ours[name].default is not inspect.Parameter.empty


@pytest.mark.parametrize("loader_class", LOADERS)
def test_arguments_can_be_positional(loader_class: type[Any]) -> None:
    """In torch's order."""
    generator = torch.Generator()
    loader = loader_class(range(7), 3, None, [5, 4, 3, 2], None, 2, as_list, False, True, 9.0, print, "fork", generator)
    values = (loader.batch_size, loader.num_workers, loader.collate_fn, loader.pin_memory, loader.drop_last)
    assert values == (3, 2, as_list, False, True)
    assert (loader.timeout, loader.worker_init_fn, loader.generator) == (9.0, print, generator)
    assert loader.multiprocessing_context.get_start_method() == "fork"
    assert loader.sampler == [5, 4, 3, 2]


ATTRIBUTES = [
    Scenario("defaults", _numbers, takes=()),
    Scenario("with workers", _numbers, {"num_workers": 2}, takes=()),
    Scenario("prefetch", _numbers, {"num_workers": 2, "prefetch_factor": 7}, takes=()),
    Scenario("no batches", _numbers, {"batch_size": None}, takes=()),
    Scenario("shuffle", _numbers, {"shuffle": True, "batch_size": 4}, takes=()),
    Scenario("own sampler", _numbers, lambda: {"sampler": RandomSampler(range(7))}, takes=()),
    Scenario("own batch sampler", _numbers, lambda: {"batch_sampler": BatchSampler(range(7), 3, False)}, takes=()),
    Scenario("generator", _numbers, lambda: {"generator": torch.Generator().manual_seed(1)}, takes=()),
    Scenario("stream", _uneven, {"batch_size": 3}, takes=()),
    Scenario("pin_memory_device", _numbers, {"pin_memory_device": "cuda", "num_workers": 1}, takes=()),
    Scenario("out of order", _numbers, {"in_order": False, "num_workers": 1}, takes=()),
    Scenario("context", _numbers, {"multiprocessing_context": "spawn", "num_workers": 1}, takes=()),
    Scenario("timeout", _numbers, {"timeout": 1.5, "num_workers": 1, "persistent_workers": True}, takes=()),
    Scenario("mapping", lambda: Keyed("abc"), {"sampler": "abc"}, takes=()),
]


@pytest.mark.parametrize("scenario", ATTRIBUTES, ids=lambda scenario: scenario.id)
def test_attributes_and_length_are_the_same(scenario: Scenario) -> None:
    """Every argument is kept under its own name, as Lightning needs it."""
    assert_parity(scenario)


@pytest.mark.parametrize("loader_class", LOADERS)
@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_what_torch_forbids_to_set_cannot_be_set(loader_class: type[Any], name: str) -> None:
    """The message names the class, and ours has the same name."""
    loader = loader_class(range(3), num_workers=2)
    with pytest.raises(ValueError, match=f"^{name} attribute should not be set after DataLoader is initialized$"):
        setattr(loader, name, None)


@pytest.mark.parametrize("loader_class", LOADERS)
def test_what_torch_lets_be_set_takes_effect(loader_class: type[Any]) -> None:
    """num_workers, collate_fn, timeout and the rest are read when iteration starts."""
    loader = loader_class(range(6), batch_size=2, num_workers=2)
    loader.collate_fn = as_list
    loader.timeout = 50
    assert list(loader) == [[0, 1], [2, 3], [4, 5]]
    loader.num_workers = 0
    loader.timeout = 0
    loader.collate_fn = sum
    assert list(loader) == [1, 5, 9]
    with pytest.raises(ValueError, match="multiprocessing_context can only be used with multi-process loading"):
        loader.multiprocessing_context = "fork"
    loader.num_workers = 1
    loader.multiprocessing_context = "fork"
    assert list(loader) == [1, 5, 9]


def test_holdfasts_loader_is_a_real_subclass() -> None:
    """isinstance checks in frameworks hold; DataLoader[int] works."""
    assert issubclass(HoldfastLoader, TorchLoader)
    assert HoldfastLoader.__name__ == "DataLoader"
    assert isinstance(HoldfastLoader[int](range(3)), TorchLoader)


class Doubled(HoldfastLoader[Any]):
    """A user's subclass."""

    def __init__(self, dataset: Any, *, factor: int, **arguments: Any) -> None:
        super().__init__(dataset, **arguments)
        self.factor = factor

    def __iter__(self) -> Any:
        return (batch * self.factor for batch in super().__iter__())


def test_a_users_subclass_works() -> None:
    """With an argument and an __iter__ of its own."""
    loader = Doubled(range(5), factor=10, num_workers=2, batch_size=2)
    assert [batch.tolist() for batch in loader] == [[0, 10], [20, 30], [40]]


def _pickled(loader: Any) -> Any:
    return pickle.loads(pickle.dumps(loader))


PICKLED: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "plain": (_numbers, {}),
    "workers": (_numbers, {"num_workers": 2, "batch_size": 2}),
    "shuffle": (_numbers, {"num_workers": 2, "shuffle": True, "batch_size": 3}),
    "own functions": (_numbers, {"num_workers": 2, "collate_fn": as_list, "worker_init_fn": draw_first}),
    "sampler": (_numbers, {"sampler": SequentialSampler(range(5)), "num_workers": 1}),
    "persistent": (_numbers, {"num_workers": 1, "persistent_workers": True}),
    "context": (_numbers, {"num_workers": 1, "multiprocessing_context": "fork"}),
    "stream": (lambda: Replicated(4), {"num_workers": 2, "batch_size": 3}),
}


@pytest.mark.parametrize("way", [_pickled, copy.copy, copy.deepcopy], ids=["pickled", "copied", "copied deeply"])
@pytest.mark.parametrize("name", PICKLED)
def test_a_loader_can_be_pickled_and_copied(name: str, way: Callable[[Any], Any]) -> None:
    """The copy is of the same class, keeps the arguments, and gives the same batches; or the same error."""
    dataset, arguments = PICKLED[name]
    results = []
    for loader_class in (TorchLoader, HoldfastLoader):
        torch.manual_seed(1)
        try:
            twin = way(loader_class(dataset(), **arguments))
        except Exception as error:
            results.append([type(error), str(error)])
            continue
        assert type(twin) is loader_class
        results.append([twin.batch_size, twin.num_workers, type(twin.sampler), twin.prefetch_factor, list(twin)])
        del twin
    assert differences(*results) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_cannot_be_pickled(workers: int) -> None:
    """NotImplementedError, as in torch."""
    for loader_class in (TorchLoader, HoldfastLoader):
        iterator = iter(loader_class(range(4), num_workers=workers))
        with pytest.raises(NotImplementedError) as caught:
            pickle.dumps(iterator)
        assert caught.value.args[0] == "{} cannot be pickled"
        del iterator, caught


def test_a_loader_with_persistent_workers_at_work_cannot_be_pickled() -> None:
    """Its iterator is part of it."""
    for loader_class in (TorchLoader, HoldfastLoader):
        loader = loader_class(range(4), num_workers=1, persistent_workers=True)
        assert len(list(loader)) == 4
        with pytest.raises(NotImplementedError):
            pickle.dumps(loader)
        del loader


# --- warnings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario("more workers than cores", _numbers, {"num_workers": 2}),
        Scenario("and persistent", _numbers, {"num_workers": 2, "persistent_workers": True}, takes=(None, None)),
        Scenario("several epochs", _numbers, {"num_workers": 2}, takes=(None, 1)),
        Scenario("no workers", _numbers),
    ],
    ids=lambda scenario: scenario.id,
)
def test_the_warning_about_too_many_workers_is_the_same(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, category, and how often: at construction and at each iter()."""
    monkeypatch.setattr(torch._utils, "cpu_count", lambda: 1)
    assert_parity(scenario)


def test_the_warning_about_too_many_workers_is_really_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._utils, "cpu_count", lambda: 1)
    outcome = run(HoldfastLoader, Scenario("one epoch", _numbers, {"num_workers": 2}))
    assert [kind for kind, _ in outcome.warnings] == [UserWarning, UserWarning]
    assert "will create 2 worker processes in total" in outcome.warnings[0][1]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="the warning is about machines without an accelerator")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "arguments",
    [
        {"pin_memory": True},
        {"pin_memory": True, "batch_size": None},
        {"pin_memory": True, "pin_memory_device": "cuda"},
        {"pin_memory": False, "pin_memory_device": "cuda"},
        {"pin_memory": True, "collate_fn": as_list, "batch_size": 2},
    ],
    ids=str,
)
def test_pin_memory_without_an_accelerator_warns_the_same(workers: int, arguments: dict[str, Any]) -> None:
    """One warning per iterator, and ordinary batches."""
    assert_parity(Scenario("pin", lambda: MapDataset(vector), {"num_workers": workers, **arguments}, takes=(None, 2)))


@pytest.mark.skipif(torch.accelerator.is_available(), reason="the warning is about machines without an accelerator")
def test_the_warning_about_pin_memory_is_really_there() -> None:
    outcome = run(HoldfastLoader, Scenario("one epoch", _numbers, {"num_workers": 2, "pin_memory": True}))
    assert [kind for kind, _ in outcome.warnings] == [UserWarning]
    assert "no accelerator is found" in outcome.warnings[0][1]
