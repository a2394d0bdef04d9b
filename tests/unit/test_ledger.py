"""What a loader keeps account of: who is to blame decides how long a sample is remembered."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastWarning, TooManySkipped
from holdfast.incident import Incident
from holdfast.loader.ledger import Blame, Ledger
from holdfast.loader.policy import Policy
from holdfast.loader.skips import SkippedFile, SkippedSample
from holdfast.words import plural

DATASET = range(64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "skipped.jsonl"


def ledger(path: Path | None = None, dataset: Any = DATASET, **arguments: Any) -> Ledger:
    return Ledger(Policy(on_error="skip", skipped_file=path, **arguments), dataset)


@pytest.mark.parametrize(
    ("blame", "in_this_run", "in_the_next"),
    [(Blame.ITSELF, True, True), (Blame.PERHAPS, True, False), (Blame.NOBODY, False, False)],
)
def test_blame_decides_how_long_a_sample_is_remembered(
    path: Path, blame: Blame, in_this_run: bool, in_the_next: bool
) -> None:
    """All are listed. The file gets only what the sample itself caused: never an outside kill, nor a bad batch."""
    first = ledger(path)
    sample = SkippedSample(17, "ValueError: bad", None, 0, 3)
    first.pass_over(sample, blame)
    assert first.skipped == [sample]
    assert (17 in first.known) is in_this_run
    assert path.exists() is in_the_next
    assert (17 in ledger(path).known) is in_the_next


def test_a_sample_that_is_passed_over_again_is_listed_again_and_written_once(path: Path) -> None:
    """Once for every time that it was not delivered."""
    accounts = ledger(path)
    for epoch in range(3):
        accounts.pass_over(SkippedSample(17, "r", None, epoch), Blame.ITSELF)
    assert [sample.epoch for sample in accounts.skipped] == [0, 1, 2]
    assert path.read_bytes().count(b'"index"') == 1


def test_a_sample_known_from_the_file_is_not_written_again(path: Path) -> None:
    """The file does not grow from run to run."""
    ledger(path).pass_over(SkippedSample(17, "r"), Blame.ITSELF)
    before = path.read_bytes()
    again = ledger(path)
    assert again.known.reason(17) == "r"
    again.pass_over(SkippedSample(17, "r"), Blame.ITSELF)
    assert path.read_bytes() == before


def test_a_sample_whose_index_cannot_be_hashed_is_listed_only(path: Path) -> None:
    """Nothing else can be done with it."""
    accounts = ledger(path)
    accounts.pass_over(SkippedSample([1, 2], "r"), Blame.ITSELF)
    assert len(accounts.skipped) == 1
    assert not accounts.known
    assert not path.exists()


def test_a_file_of_another_dataset_is_refused_when_the_loader_is_made(path: Path) -> None:
    """And not when the epoch is half over."""
    SkippedFile(path, 63).append(1, "r")
    with pytest.raises(ValueError, match="of a dataset of 63 samples, but this one has 64"):
        ledger(path)


def test_a_loader_that_is_disabled_leaves_the_file_alone(path: Path) -> None:
    """torch's own iterator would not heed it."""
    path.write_text("not ours\n")
    accounts = Ledger(Policy(on_error="skip", skipped_file=path), DATASET, reads_file=False)
    accounts.pass_over(SkippedSample(17, "r"), Blame.ITSELF)
    assert path.read_text() == "not ours\n"


class NoLength:
    """torch's Dataset: a type that has no length, or refuses to say it."""

    def __len__(self) -> int:
        raise NotImplementedError


@pytest.mark.parametrize("dataset", [iter(()), NoLength()], ids=["none", "refused"])
def test_a_dataset_without_length_has_a_file_of_its_own_kind(path: Path, dataset: Any) -> None:
    """Written and read by datasets that have none."""
    ledger(path, dataset).pass_over(SkippedSample(17, "r"), Blame.ITSELF)
    assert 17 in ledger(path, dataset).known


@pytest.mark.parametrize(
    ("limit", "skipped", "samples", "is_over"),
    [
        (None, 10**6, 10, False),
        (0, 0, None, False),
        (0, 1, None, True),
        (3, 3, None, False),
        (3, 4, None, True),
        (1, 2, 1000, True),
        (0.0, 0, 1000, False),
        (0.0, 1, 1000, True),
        (0.01, 10, 1000, False),
        (0.01, 11, 1000, True),
        (1.0, 1000, 1000, False),
        (0.5, 1, 1, True),
        ("auto", 10, 0, False),
        ("auto", 10, 99, False),
        ("auto", 11, 99, True),
        ("auto", 100, 1000, False),
        ("auto", 101, 1000, True),
    ],
)
def test_no_more_samples_are_skipped_than_allowed(
    limit: int | float | str | None, skipped: int, samples: int | None, is_over: bool
) -> None:
    """A number of them, or a share of the epoch. 1 is one sample, 1.0 is all. "auto": a tenth, and at least 10."""
    accounts = ledger(max_skipped=limit)
    if not is_over:
        accounts.check_number(skipped, samples)
        return
    said = rf"^{plural(skipped, 'sample')} of this epoch .* max_skipped={limit} allows( \(.*\))?\n"
    with pytest.raises(TooManySkipped, match=said):
        accounts.check_number(skipped, samples)


def test_the_limit_of_auto_is_told_as_a_whole_number() -> None:
    """A tenth of twelve million and five is not "1.2e+06"."""
    ledger = Ledger(Policy(on_error="skip"), range(10))
    with pytest.raises(TooManySkipped, match=r"\(1,200,000 here"):
        ledger.check_number(1_200_001, 12_000_005)


def test_too_many_skipped_tells_the_last_of_them_and_what_to_do() -> None:
    """Five with their reasons: enough to see a pattern."""
    accounts = ledger(max_skipped=8)
    for index in range(9):
        accounts.pass_over(SkippedSample(f"{index}.png", f"reason {index}"), Blame.ITSELF)
    with pytest.raises(TooManySkipped) as caught:
        accounts.check_number(9, None)
    said = str(caught.value)
    assert [line.strip() for line in said.split("\n") if ".png" in line] == [
        f"'{index}.png': reason {index}" for index in range(4, 9)
    ]
    assert "loader.skipped_samples" in said


def test_what_was_noted_before_too_many_were_is_withdrawn_and_forgotten(path: Path) -> None:
    """By this run and for the next: only what the file said before is known. Nothing more is noted in that epoch."""
    ledger(path).pass_over(SkippedSample(17, "r"), Blame.ITSELF)
    accounts = ledger(path, max_skipped=2)
    accounts.epoch = 0
    for index in range(3):
        accounts.pass_over(SkippedSample(index, "away"), Blame.ITSELF)
    with pytest.raises(TooManySkipped, match="is withdrawn: the next run tries these samples again"):
        accounts.check_number(3, None)
    accounts.remember(9, "on its way", Blame.ITSELF)
    assert [index for index in DATASET if index in ledger(path).known] == [17]
    assert [index for index in DATASET if index in accounts.known] == [9, 17]
    accounts.epoch = 1
    accounts.remember(33, "bad", Blame.ITSELF)
    assert [index for index in DATASET if index in ledger(path).known] == [17, 33]


def test_a_withdrawal_that_cannot_be_written_is_told_with_the_error(path: Path) -> None:
    """The file may be on the storage that is away."""
    accounts = ledger(path, max_skipped=0)
    accounts.pass_over(SkippedSample(17, "away"), Blame.ITSELF)
    path.unlink()
    path.mkdir()
    with pytest.raises(TooManySkipped, match=r"cannot be written .* is not withdrawn"):
        accounts.check_number(1, None)


def test_an_incident_is_kept_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The name of the event comes first, the facts are beside it."""
    accounts, incident = ledger(), Incident("hung", "restarted", worker_id=1)
    with caplog.at_level(logging.WARNING, "holdfast"):
        accounts.note(incident)
    assert list(accounts.incidents) == [incident]
    (record,) = caplog.records
    assert record.getMessage().startswith("incident: DataLoader: worker 1")
    assert vars(record)["incident"] is incident


def test_the_first_seed_is_the_loaders() -> None:
    """Later epochs draw others, which change nothing. A seed of 0 is a seed."""
    accounts = ledger()
    accounts.take_seed(0)
    accounts.take_seed(7)
    assert accounts.seed == 0


def test_a_file_that_cannot_be_written_costs_a_warning_and_not_the_run(tmp_path: Path) -> None:
    """The sample is passed over all the same, and known to be bad in this run."""
    path = tmp_path / "skipped.jsonl"
    ledger = Ledger(Policy(on_error="skip", skipped_file=path), range(10))
    path.mkdir()  # as good as a full disk: also root cannot write to it
    ledger.pass_over(SkippedSample(3, "bad"), Blame.ITSELF)
    with pytest.warns(HoldfastWarning, match="sample 3 is not noted"):
        ledger.notices.say()
    assert 3 in ledger.known
    assert [sample.index for sample in ledger.skipped] == [3]
