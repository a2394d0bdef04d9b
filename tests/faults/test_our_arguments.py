"""Our own arguments: wrong values are refused by name; without workers what can be honoured is; disabled, none is."""

from __future__ import annotations

import itertools
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data
from torch.utils.data import IterableDataset

from helpers import Numbers
from holdfast import DataLoader, HoldfastWarning
from records import Asked, AskedStream, Calls, flat, stubborn

pytestmark = pytest.mark.timeout(60)

LENGTH = 12
BAD = 5
REST = [index for index in range(LENGTH) if index != BAD]

WRONG: list[tuple[str, Any]] = [
    *(("on_error", value) for value in ("ignore", "Skip", "", None, True)),
    *(("max_retries", value) for value in (-1, 1.5, "2", None, True)),
    *(("max_restarts", value) for value in (-1, 0.5, "2", None, False)),
    *(("retry_on", value) for value in ("OSError", (OSError, "x"), 3, KeyboardInterrupt, (BaseException,), OSError())),
    *(("max_skipped", value) for value in (-1, -0.1, 1.1, float("nan"), float("inf"), "3", True)),
    *(("sample_timeout", value) for value in (0, -1.0, float("nan"), float("inf"), "1", True)),
    *(("memory_limit", value) for value in (0, -1, "4", "lots", "80%", 1.5, True)),
    *(("recycle_after", value) for value in (0, -1, 1.5, "5", True)),
    *(("rng", value) for value in ("samples", None, 3)),
    *(("backend", value) for value in ("no such backend", 3)),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda value: repr(value)[:30])
def test_a_wrong_value_is_refused_by_name(name: str, value: Any) -> None:
    """At construction, with the name of the argument."""
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        DataLoader(Numbers(LENGTH), num_workers=1, **{name: value})


RIGHT: list[tuple[str, Any]] = [
    *(("on_error", value) for value in ("raise", "skip", "replace")),
    *(("max_retries", value) for value in (0, 7)),
    *(("max_restarts", value) for value in (0, 7)),
    *(("retry_on", value) for value in ((), OSError, (OSError, TimeoutError), [OSError])),
    *(("max_skipped", value) for value in (None, 0, 3, 0.0, 0.5, 1.0)),
    *(("sample_timeout", value) for value in (None, 0.5, 60)),
    *(("memory_limit", value) for value in (None, 2 << 30, "4GB")),
    *(("recycle_after", value) for value in (None, 1, 4)),
    *(("rng", value) for value in ("worker", "sample")),
]


@pytest.mark.parametrize(("name", "value"), RIGHT, ids=lambda value: repr(value)[:30])
def test_a_right_value_is_kept_as_it_was_given(name: str, value: Any) -> None:
    """As an attribute of its own name, which is how frameworks rebuild a loader."""
    with DataLoader(Numbers(LENGTH, 1), 2, num_workers=1, **{name: value}) as loader:
        assert getattr(loader, name) is value
        assert flat(loader) == list(range(LENGTH))


class Endless(IterableDataset[int]):
    """Has no length."""

    def __iter__(self) -> Any:
        return itertools.count()


def test_a_share_of_an_unknown_number_is_refused() -> None:
    """max_skipped as a share needs a length to be a share of."""
    with pytest.raises(ValueError, match="max_skipped"):
        DataLoader(Endless(), max_skipped=0.1, on_error="skip")


# -- without workers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), [("sample_timeout", 1.0), ("memory_limit", "1GB"), ("recycle_after", 5)])
def test_without_workers_what_needs_one_is_refused_by_name(name: str, value: Any) -> None:
    """Nothing could end a sample that hangs in this process, and no limit of its memory could be the samples' alone."""
    with pytest.raises(ValueError, match=rf"{name}.*num_workers"):
        DataLoader(Numbers(LENGTH), **{name: value})


@pytest.mark.parametrize(("on_error", "delivered"), [("skip", REST), ("replace", [*range(5), 4, *range(6, LENGTH)])])
def test_without_workers_on_error_is_honoured(on_error: Any, delivered: list[int], tmp_path: Path) -> None:
    """The same samples as with workers, and the same accounts."""
    accounts = []
    for num_workers in (0, 2):
        dataset = Asked(LENGTH, Calls(tmp_path / f"calls {num_workers}"), {BAD: ValueError("broken")})
        with DataLoader(dataset, 2, num_workers=num_workers, on_error=on_error) as loader:
            assert flat(loader) == delivered
            assert flat(loader) == delivered
            skipped = [(sample.index, sample.reason, sample.replaced_by) for sample in loader.skipped_samples]
            noted = [(found.cause, found.done, found.phase, found.sample_index) for found in loader.incidents]
            accounts.append((skipped, noted, dataset.calls.counts()[str(BAD)]))
    assert accounts[0] == accounts[1]


def test_without_workers_raise_is_torchs_own(tmp_path: Path) -> None:
    """The exception itself, and the next batch after it."""
    error = ValueError("broken")
    dataset = Asked(LENGTH, Calls(tmp_path / "calls"), {BAD: error})
    outcomes = stubborn(iter(DataLoader(dataset, 2)))
    assert outcomes.pop(2) is error
    assert outcomes == [[0, 1], [2, 3], [6, 7], [8, 9], [10, 11]]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_without_workers_a_bad_batch_is_treated_as_with_workers(on_error: Any) -> None:
    """collate_fn raises at every attempt: all its samples are listed, and the accounts are the same."""
    accounts = []
    for num_workers in (0, 1):
        for dataset in (Numbers(LENGTH, 1), _Stream()):
            loader = DataLoader(dataset, 2, num_workers=num_workers, collate_fn=_refuse_five, on_error=on_error)
            with loader:
                batches = [batch.tolist() for batch in loader]
                skipped = [sample.index for sample in loader.skipped_samples]
                noted = [(found.done, found.phase) for found in loader.incidents]
            accounts.append((len(batches), skipped, noted))
    assert accounts[:2] == accounts[2:]
    count = 6 if on_error == "replace" else 5
    assert [found[:2] for found in accounts[:2]] == [(count, [4, 5]), (5, [(0, 4), (0, 5)])]


class _Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.arange(LENGTH).unsqueeze(1))


def _refuse_five(samples: list[torch.Tensor]) -> torch.Tensor:
    batch = torch.cat(samples)
    if BAD in batch:
        raise ValueError("uneven")
    return batch


# -- disabled ----------------------------------------------------------------------------------------------------------


def test_disabled_ours_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """HOLDFAST_DISABLE=1: torch's own iterator, which raises; files that are not ours are not even read."""
    monkeypatch.setenv("HOLDFAST_DISABLE", "1")
    (tmp_path / "file").write_text("not ours\n")
    for kind in (Asked, AskedStream):
        dataset = kind(LENGTH, Calls(tmp_path / "calls"), {BAD: ValueError("broken")})
        loader = DataLoader(
            dataset,
            2,
            on_error="skip",
            max_retries=3,
            retry_on=(ValueError,),
            max_skipped=1,
            sample_timeout=5.0,
            memory_limit="1GB",
            recycle_after=1,
            skipped_file=tmp_path / "file",
            rng="sample",
            backend="no such backend",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HoldfastWarning)  # said once in a process
            iterator = iter(loader)
        assert type(iterator) is torch.utils.data.dataloader._SingleProcessDataLoaderIter
        with pytest.raises(ValueError, match="broken"):
            list(iterator)
        assert list(loader.incidents) == loader.skipped_samples == []
    assert dataset.loads.calls.counts()[str(BAD)] == 2
    assert (tmp_path / "file").read_text() == "not ours\n"
    assert os.environ["HOLDFAST_DISABLE"] == "1"
