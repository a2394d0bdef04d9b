"""The storage goes away, and comes back: an outage ends a run, and is not taken for bad samples by the next one."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, DistributedSampler, IterableDataset, Sampler

from helpers import Numbers
from holdfast import DataLoader, HoldfastWarning, TooManySkipped
from holdfast.loader.skips import SkippedFile
from records import Asked, Calls, flat, share_of, stubborn

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings(r"ignore:\d+ samples? listed in skipped_file")]

LENGTH = 40
PROGRAM_S = 60


class Files(Dataset[torch.Tensor]):
    """Sample i is the number in file i of a directory."""

    def __init__(self, directory: Path, length: int = LENGTH) -> None:
        self.paths = [directory / f"{index}.txt" for index in range(length)]
        directory.mkdir(exist_ok=True)
        for index, path in enumerate(self.paths):
            path.write_text(str(index))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(int(self.paths[index].read_text()))


class Elements(IterableDataset[torch.Tensor]):
    """`Asked` as an iterable, whose iterator goes on after an element that raised."""

    def __init__(self, length: int, calls: Calls, errors: dict[int, BaseException]) -> None:
        self.loads = Asked(length, calls, errors)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return map(self.loads.__getitem__, share_of(len(self.loads)))


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"


def move_away(storage: Path) -> None:
    storage.rename(storage.with_name("elsewhere"))


def move_back(storage: Path) -> None:
    storage.with_name("elsewhere").rename(storage)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()[1:]]


def broken(*indices: int) -> dict[int, BaseException]:
    return {index: ValueError("broken") for index in indices}


# --- away, and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("max_skipped", ["auto", None, 1.0, 3])
def test_an_outage_does_not_empty_the_dataset(max_skipped: Any, num_workers: int, storage: Path) -> None:
    """With every `max_skipped` the run ends with TooManySkipped, and once the storage is back all samples come."""
    data, file = Files(storage), storage.with_name("bad.jsonl")

    def loader() -> DataLoader[torch.Tensor]:
        options: dict[str, Any] = {"on_error": "skip", "max_skipped": max_skipped, "skipped_file": file}
        return DataLoader(data, 4, num_workers=num_workers, **options)

    move_away(storage)
    with loader() as away, pytest.raises(TooManySkipped, match="see that the data can be reached") as caught:
        list(away)
    assert "FileNotFoundError" in str(caught.value)
    assert caught.value.incident is away.incidents[-1]
    move_back(storage)
    with warnings.catch_warnings(), loader() as back:
        warnings.simplefilter("error")  # nothing is left out, so there is nothing to warn of
        assert flat(back) == list(range(LENGTH))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("length", [6, 300])
def test_with_replace_an_outage_does_not_empty_it_either(
    length: int, goes_on: bool, num_workers: int, storage: Path
) -> None:
    """A batch without a usable substitute raises. Neither it nor the batches on their way leave lines that count."""
    data, file = Files(storage, length), storage.with_name("bad.jsonl")

    def loader() -> DataLoader[torch.Tensor]:
        return DataLoader(data, 4, num_workers=num_workers, on_error="replace", skipped_file=file)

    move_away(storage)
    with loader() as away:
        iterator = iter(away)
        if goes_on:
            assert all(isinstance(outcome, FileNotFoundError | TooManySkipped) for outcome in stubborn(_few(iterator)))
        else:
            with pytest.raises((FileNotFoundError, TooManySkipped)):
                next(iterator)
        del iterator
    move_back(storage)
    with loader() as back:
        assert flat(back) == list(range(length))


def _few(iterator: Iterator[Any]) -> Iterator[Any]:
    """Its first outcomes: after TooManySkipped the same is raised for ever."""

    class Few(Iterator[Any]):
        left = 8

        def __next__(self) -> Any:
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return next(iterator)

    return Few()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_next_epoch_of_the_same_loader_tries_them_again(num_workers: int, storage: Path) -> None:
    """For users who catch the error and wait for the storage. What is found bad from then on is noted again."""
    data, file = Files(storage), storage.with_name("bad.jsonl")
    with DataLoader(data, 4, num_workers=num_workers, on_error="skip", skipped_file=file) as loader:
        move_away(storage)
        with pytest.raises(TooManySkipped):
            list(loader)
        move_back(storage)
        data.paths[5].unlink()
        assert flat(loader) == [index for index in range(LENGTH) if index != 5]
    withdrawn = [line["withdrawn"] for line in lines(file) if "withdrawn" in line]
    assert len(withdrawn) == 1
    assert [line["index"] for line in lines(file) if line.get("run") not in withdrawn and "index" in line] == [5]


def test_a_file_that_an_older_version_filled_in_an_outage_is_named_with_the_remedy(tmp_path: Path) -> None:
    """Its lines have no run, and count: that nothing is left to deliver is an error, with what to delete."""
    file = tmp_path / "bad.jsonl"
    header = {"holdfast": "skipped samples", "version": 1, "dataset_length": 4}
    written = [header, *({"index": index, "reason": "away"} for index in range(4))]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in written))
    for num_workers in (0, 1):
        for on_error in ("skip", "replace"):
            options: dict[str, Any] = {"on_error": on_error, "skipped_file": file, "max_skipped": None}
            with (
                DataLoader(Numbers(4), 2, num_workers=num_workers, **options) as loader,
                pytest.raises(
                    TooManySkipped, match=r"delete the file, so that the 4 samples listed in skipped_file=.*bad"
                ),
            ):
                list(loader)
    assert len(file.read_text().splitlines()) == 5


def test_a_loader_withdraws_its_own_lines_only(storage: Path) -> None:
    """Of two loaders in one process, one ends so: what the other found stays, and so does an older line."""
    file = storage.with_name("bad.jsonl")
    data = Files(storage)
    with DataLoader(data, 4, on_error="skip", skipped_file=file) as good:
        data.paths[7].unlink()
        assert len(flat(good)) == LENGTH - 1
        data.paths[9].unlink()
        with DataLoader(data, 4, on_error="skip", skipped_file=file) as other:
            assert len(flat(other)) == LENGTH - 2
            with DataLoader(data, 4, on_error="skip", skipped_file=file) as away:
                move_away(storage)
                with pytest.raises(TooManySkipped):
                    list(away)
                move_back(storage)
    with DataLoader(data, 4, on_error="skip", skipped_file=file) as back:
        assert flat(back) == [index for index in range(LENGTH) if index not in (7, 9)]
        assert not back.incidents


def test_a_forked_rank_does_not_withdraw_what_its_sibling_found(tmp_path: Path) -> None:
    """Both have inherited the loader: each writes as a run of its own."""
    file = tmp_path / "bad.jsonl"
    data = Asked(LENGTH, Calls(tmp_path / "calls"), {})
    loader = DataLoader(data, 4, on_error="skip", skipped_file=file)
    for bad in (range(3), range(LENGTH)):
        pid = os.fork()
        if pid == 0:
            data.errors.update(broken(*bad))
            try:
                list(loader)
            except TooManySkipped:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (0 if len(bad) == 3 else 7)
    with DataLoader(data, 4, on_error="skip", skipped_file=file) as loader:
        assert flat(loader) == list(range(3, LENGTH))


# --- how many are too many --------------------------------------------------------------------------------------------


class Unsized(Sampler[int]):
    """A sampler that does not say how many there are."""

    def __init__(self, length: int) -> None:
        self.indices = range(length)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize(("length", "allowed"), [(40, 10), (200, 20)])
def test_auto_allows_a_tenth_of_the_epoch_and_at_least_ten(
    length: int, allowed: int, on_error: Any, num_workers: int, tmp_path: Path
) -> None:
    """It is the default. One more ends the epoch."""
    for count in (allowed, allowed + 1):
        bad = range(3, 3 + 3 * count, 3)
        data = Asked(length, Calls(tmp_path / f"{count}"), broken(*bad))
        with DataLoader(data, 10, num_workers=num_workers, on_error=on_error) as loader:
            assert loader.max_skipped == "auto"
            if count > allowed:
                with pytest.raises(
                    TooManySkipped, match=rf"^{count} samples .*max_skipped=auto allows \({allowed} here"
                ):
                    list(loader)
            else:
                came = flat(loader)
                assert set(came) == set(range(length)) - set(bad)
                assert len(came) == (length if on_error == "replace" else length - count)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_auto_does_not_count_what_was_known_before(on_error: Any, num_workers: int, tmp_path: Path) -> None:
    """From the file, or from an earlier epoch: ten of these, and ten that are new, are no reason to stop."""
    data, file = Asked(LENGTH, Calls(tmp_path / "calls"), broken(*range(10))), tmp_path / "bad.jsonl"
    options: dict[str, Any] = {"on_error": on_error, "skipped_file": file, "num_workers": num_workers}
    with DataLoader(data, 10, shuffle=True, **options) as loader:
        for _ in range(2):
            assert set(flat(loader)) == set(range(10, LENGTH))
    data.errors.update(broken(*range(10, 20)))
    with DataLoader(data, 10, shuffle=True, **options) as loader:
        for _ in range(2):
            assert set(flat(loader)) == set(range(20, LENGTH))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", ["sampler", "batch sampler", "iterable"])
def test_without_a_length_auto_is_a_tenth_of_what_came_so_far(kind: str, num_workers: int, tmp_path: Path) -> None:
    """Twenty late ones of three hundred are allowed; eleven in the first batches are not."""
    for bad, is_too_many in ((range(250, 270), False), (range(11), True)):
        calls, arguments = Calls(tmp_path / f"{is_too_many}"), {"batch_size": 5}
        data: Any = (Elements if kind == "iterable" else Asked)(300, calls, broken(*bad))
        if kind == "sampler":
            arguments["sampler"] = Unsized(300)  # type: ignore[assignment]
        elif kind == "batch sampler":
            arguments = {"batch_sampler": [list(range(k, k + 5)) for k in range(0, 300, 5)]}  # type: ignore[dict-item]
        with DataLoader(data, num_workers=num_workers, on_error="skip", **arguments) as loader:  # type: ignore[arg-type]
            if is_too_many:
                with pytest.raises(TooManySkipped, match=r"^11 samples .*\(10 here"):
                    list(loader)
            else:
                assert sorted(flat(loader)) == sorted(set(range(300)) - set(bad))


class Endless(Unsized):
    """A sampler that begins again after its last index, as training by iterations has it."""

    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(self.indices)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_auto_counts_a_sample_once_however_often_the_sampler_gives_it(num_workers: int, tmp_path: Path) -> None:
    """Five of twenty are bad, and an epoch has no end: after the first time they are not tried, only left out."""
    data = Asked(20, Calls(tmp_path / "calls"), broken(*range(5)))
    with DataLoader(data, 4, sampler=Endless(20), num_workers=num_workers, on_error="skip") as loader:
        came = [number for batch in itertools.islice(loader, 80) for number in batch.tolist()]
    assert set(came) == set(range(5, 20))
    assert len(loader.skipped_samples) > 50


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("known", [6, 0])
def test_a_sampler_without_end_that_gives_only_bad_samples_is_an_error(
    known: int, num_workers: int, tmp_path: Path
) -> None:
    """Known from a file, or found in this epoch. The end of the epoch, which would tell, never comes."""
    data, file = Asked(6, Calls(tmp_path / "calls"), broken(*range(6))), tmp_path / "bad.jsonl"
    skipped_file = SkippedFile(file, len(data))
    for index in range(known):
        skipped_file.append(index, "broken")
    options: dict[str, Any] = {"on_error": "skip", "skipped_file": file, "num_workers": num_workers}
    with (
        DataLoader(data, 3, sampler=Endless(6), **options) as loader,
        pytest.raises(TooManySkipped, match=r"^the last \d+ samples that the sampler gave are all known to be bad"),
    ):
        next(iter(loader))
    with DataLoader(data, 3, **options) as loader:
        data.errors.clear()
        if known:
            with pytest.raises(TooManySkipped, match=r"delete the file, so that the 6 samples"):
                list(loader)
        else:
            assert flat(loader) == [*range(6)]


def test_with_a_batch_sampler_the_epoch_is_that_of_its_own_sampler(tmp_path: Path) -> None:
    """Beside it torch's `loader.sampler` is of the whole dataset, and a rank's share of it is a part."""
    data = Asked(2000, Calls(tmp_path / "calls"), broken(*range(0, 44, 4)))
    sampler = BatchSampler(DistributedSampler(data, 4, 0, shuffle=False), 5, drop_last=False)  # type: ignore[arg-type]
    with (
        pytest.warns(HoldfastWarning, match="4 ranks"),
        DataLoader(data, batch_sampler=sampler, on_error="skip") as one,
    ):
        assert len(flat(one)) == 500 - 11  # a tenth of the 500 is 50
    data.errors.update(broken(*range(0, 204, 4)))
    with (
        pytest.warns(HoldfastWarning, match="4 ranks"),
        DataLoader(data, batch_sampler=sampler, on_error="skip") as one,
        pytest.raises(TooManySkipped, match=r"\(50 here"),
    ):
        list(one)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", [Asked, Elements])
@pytest.mark.parametrize("max_skipped", ["auto", None, 4, 1.0])
def test_an_epoch_that_delivers_nothing_is_an_error(
    max_skipped: Any, kind: Any, num_workers: int, tmp_path: Path
) -> None:
    """For every `max_skipped`, and again whenever the iterator is asked; persistent workers or not."""
    if kind is Elements and isinstance(max_skipped, float):
        pytest.skip("a share needs a length")
    data = kind(4, Calls(tmp_path / "calls"), broken(*range(4)))
    options: dict[str, Any] = {"on_error": "skip", "max_skipped": max_skipped, "persistent_workers": num_workers > 0}
    with DataLoader(data, 2, num_workers=num_workers, **options) as loader:
        for _ in range(2):
            iterator = iter(loader)
            for _ in range(2):
                with pytest.raises(TooManySkipped, match=r"^no sample of this epoch was delivered.* 4 tried"):
                    next(iterator)


class Nothing(IterableDataset[torch.Tensor]):
    """No elements."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(())


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_epoch_without_samples_is_none(num_workers: int) -> None:
    """The sampler gave no index: nothing was lost."""
    for data, arguments in ((Numbers(4), {"sampler": []}), (Nothing(), {})):
        with DataLoader(data, 2, num_workers=num_workers, on_error="skip", **arguments) as loader:  # type: ignore[arg-type]
            assert list(loader) == []


# --- what is left out because of a file -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default:.*listed in skipped_file")
@pytest.mark.parametrize("num_workers", [0, 1])
def test_samples_left_out_because_of_a_file_are_told_once(num_workers: int, tmp_path: Path) -> None:
    """With their number and the file, at the user's line."""
    data, file = Asked(6, Calls(tmp_path / "calls"), broken(1, 4)), tmp_path / "bad.jsonl"
    with DataLoader(data, 2, on_error="skip", skipped_file=file) as loader:
        list(loader)
    with DataLoader(data, 2, num_workers=num_workers, on_error="skip", skipped_file=file) as loader:
        with pytest.warns(HoldfastWarning, match=r"^2 samples listed in skipped_file='.*bad\.jsonl'") as caught:
            iter(loader)
        assert [warning.filename for warning in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert flat(loader) == [0, 2, 3, 5]


def test_a_loader_that_is_sent_to_another_process_tells_there_what_the_file_leaves_out(tmp_path: Path) -> None:
    """If it has not told yet: it was made in one process, and is used in another."""
    file = tmp_path / "bad.jsonl"
    SkippedFile(file, 6).append(1, "broken")
    loader = DataLoader(Numbers(6), 2, on_error="skip", skipped_file=file)
    with (
        pickle.loads(pickle.dumps(loader)) as sent,
        pytest.warns(HoldfastWarning, match=r"^1 sample listed in skipped_file"),
    ):
        iter(sent)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_of_an_iterable_nothing_is_left_out_because_of_a_file(num_workers: int, tmp_path: Path) -> None:
    """Its elements have no index: those that were bad are tried again, and no warning says otherwise."""
    data, file = Elements(12, Calls(tmp_path / "calls"), broken(1, 4)), tmp_path / "bad.jsonl"
    for bad in (2, 0):
        with (
            warnings.catch_warnings(),
            DataLoader(data, 2, num_workers=num_workers, on_error="skip", skipped_file=file) as loader,
        ):
            warnings.simplefilter("error", HoldfastWarning)
            assert len(flat(loader)) == 12 - bad
        data.loads.errors.clear()


# --- files that are none ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["a FIFO", "a directory", "a socket", "a device"])
def test_what_is_no_regular_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    """To open a FIFO waits for a writer; the error names argument and remedy."""
    path = tmp_path / "bad.jsonl"
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "a FIFO":
            os.mkfifo(path)
        elif kind == "a directory":
            path.mkdir()
        elif kind == "a socket":
            listening.bind(str(path))
        else:
            path.symlink_to("/dev/zero")
        with pytest.raises(ValueError, match=rf"^skipped_file='{path}' is {kind}.* Name a regular file"):
            DataLoader(Numbers(4), on_error="skip", skipped_file=path)


def test_the_null_device_is_as_good_as_an_empty_file(tmp_path: Path) -> None:
    """It could be read and written before, and remembers nothing."""
    data = Asked(6, Calls(tmp_path / "calls"), broken(1))
    for _ in range(2):
        with DataLoader(data, 2, on_error="skip", skipped_file="/dev/null") as loader:
            assert flat(loader) == [0, 2, 3, 4, 5]
    assert data.calls.counts()["1"] == 2


# --- ranks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["sampler", "environment", "torch"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_skip_with_several_ranks_names_what_works(
    where: str, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that loses a whole batch ends early, and the others wait: "replace" does not do that, and is silent."""
    data, sampler = Numbers(8), None
    if where == "sampler":
        sampler = DistributedSampler(data, 2, 0, shuffle=False)  # type: ignore[arg-type]
    elif where == "environment":
        monkeypatch.setenv("WORLD_SIZE", "2")
    else:
        for name, value in {"is_initialized": True, "get_rank": 0, "get_world_size": 2}.items():
            monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    options: dict[str, Any] = {"sampler": sampler, "num_workers": num_workers}
    with DataLoader(data, 2, on_error="skip", **options) as loader:
        with pytest.warns(HoldfastWarning, match='with 2 ranks: .*on_error="replace"') as caught:
            list(loader)
        assert [warning.filename for warning in caught] == [__file__]
        list(loader)  # it is said once
    for on_error in ("raise", "replace"):
        with DataLoader(data, 2, on_error=on_error, **options) as loader:  # type: ignore[arg-type]
            list(loader)


# --- heard without logging --------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, warnings
import torch
from torch.utils.data import Dataset
from holdfast import DataLoader, HoldfastWarning

class Bad(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        if index in (17, 23, 38):
            raise ValueError("not a JPEG file")
        if index == 5 and sys.argv[3] == "crash" and not os.path.exists(sys.argv[4]):
            open(sys.argv[4], "w").close()
            os._exit(3)
        return torch.tensor(index)

{setup}
def main():
    on_error, workers = sys.argv[1], int(sys.argv[2])
    loader = DataLoader(Bad(), 4, num_workers=workers, on_error=on_error)
    came, raised = [], 0
    iterator = iter(loader)
    while True:
        try:
            batch = next(iterator)  # the user's line
        except StopIteration:
            break
        except HoldfastWarning:
            raised += 1
        else:
            came.append(batch.tolist())
    assert {{k for batch in came for k in batch}} == set(range(40)) - {{17, 23, 38}}, came
    assert len(came) == 10, came
    print("raised", raised)
{end}
main()
"""


def run_user(tmp_path: Path, *args: str, setup: str = "", end: str = "") -> Any:
    """Run such a script as a user does, without pytest's log handlers."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(setup=setup, end=end))
    given = [*[*args, "no"][:3], str(tmp_path / "crashed")]
    done = subprocess.run(
        [sys.executable, str(script), *given], capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def users_line(tmp_path: Path) -> str:
    text = (tmp_path / "train.py").read_text().splitlines()
    return f"train.py:{text.index('            batch = next(iterator)  # the user' + chr(39) + 's line') + 1}"


@pytest.mark.parametrize(
    ("on_error", "words", "workers", "end"),
    [
        ("skip", "was skipped", "1", "    loader.close()"),
        ("skip", "was skipped", "0", ""),
        ("replace", "was replaced by", "1", ""),
    ],
)
def test_a_script_without_logging_is_told(on_error: str, words: str, workers: str, end: str, tmp_path: Path) -> None:
    """The first sample passed over, once and at the user's line; in the end one line, closed or not."""
    done = run_user(tmp_path, on_error, workers, end=end)
    told = [line for line in done.stderr.splitlines() if "HoldfastWarning: " in line]
    assert len(told) == 2, done.stderr
    assert f"{users_line(tmp_path)}: HoldfastWarning: sample 17 {words}" in told[0]
    assert "ValueError: not a JPEG file" in told[0]
    assert "3 samples were" in told[1]
    assert "in this loader: 17, 23, 38; see loader.skipped_samples" in told[1]
    assert not end or "train.py:" in told[1]
    assert "Traceback" not in done.stderr


def test_a_script_without_logging_is_told_of_the_first_restart(tmp_path: Path) -> None:
    """The worker, how it ended, and what it was doing."""
    done = run_user(tmp_path, "skip", "1", "crash")
    told = [line for line in done.stderr.splitlines() if "HoldfastWarning: worker" in line]
    assert len(told) == 1, done.stderr
    assert users_line(tmp_path) in told[0]
    assert "sample 5" in told[0]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_under_w_error_no_batch_is_lost(workers: str, tmp_path: Path) -> None:
    """The warning is raised once for each kind, and the next call gives the batch that was due."""
    crash = "crash" if workers != "0" else "no"
    done = run_user(tmp_path, "skip", workers, crash, setup=STRICT)
    assert done.stdout == ("raised 2\n" if crash == "crash" else "raised 1\n")
    assert done.stderr.splitlines()[-1].startswith("HoldfastWarning: 3 samples were skipped in this loader")
    assert "Traceback" not in done.stderr


STRICT = 'warnings.simplefilter("error", HoldfastWarning)'
LOGGING = "import logging; logging.basicConfig(level=logging.WARNING)"


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_script_with_logging_is_told_by_the_log(workers: str, tmp_path: Path) -> None:
    """And by nothing else; also in the end."""
    done = run_user(tmp_path, "skip", workers, setup=LOGGING)
    assert "HoldfastWarning" not in done.stderr
    assert "WARNING:holdfast.incident_log:incident: DataLoader: " in done.stderr
    assert done.stderr.count("samples passed over: 3 samples were skipped in this loader: 17, 23, 38") == 1
