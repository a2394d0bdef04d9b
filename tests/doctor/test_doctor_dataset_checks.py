"""What is said of a dataset, by what was seen of it: made-up sights, judged by the checks of `tasks.examine`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.doctor.finding import Finding, Level
from holdfast.tasks.examine import checks
from holdfast.tasks.examine.examination import findings, spread
from holdfast.tasks.examine.seen import Around, Lost, Made, Pickled, Raised, Sample, Seen, Taken, duration

MADE = Made("Photos", is_iterable=False, length=100, no_length="", seconds=0.5, modules=("numpy", "h5py"))
SAMPLE = Sample(0, "tuple of Tensor float32 3x224x224, int", 0.2, 0.01, 602_112, 1 << 20)
DIED = Lost("died of a segmentation fault", "read of a null pointer", ("SIGSEGV",), ("update it",))
HUNG = Lost("hung for more than 60 s", "it had not ended after 60 s", (), (), is_hang=True)
WELL = Seen("data:photos", "fork", MADE, Pickled(100), (Taken(0, SAMPLE),))


def seen(
    made: Any = MADE, pickled: Any = WELL.pickled, sample: Any = SAMPLE, method: str = "fork", **more: Any
) -> Seen:
    return Seen("data:photos", method, made, pickled, (Taken(0, sample),), **more)


def alone(made: Any) -> Seen:
    """Of a dataset that was not made nothing else is known."""
    return Seen("data.py:photos", "fork", made)


SEEN: dict[str, tuple[Seen, str, Level, tuple[str, ...]]] = {
    "raises": (
        alone(Raised("OSError: no disk", "data.py:3 in <module>")),
        "dataset",
        Level.PROBLEM,
        ("OSError: no disk", "data.py:3", "import data; it = data.photos"),
    ),
    "crashes": (alone(DIED), "dataset", Level.PROBLEM, ("segmentation fault", "null pointer", "it ends the trainer")),
    "hangs": (alone(HUNG), "dataset", Level.PROBLEM, ("hung for more than 60 s", "holds up the trainer")),
    "no torch": (alone(None), "dataset", Level.NOTE, ("was not looked at",)),
    "no length": (seen(replace(MADE, length=None)), "dataset", Level.PROBLEM, ("Photos has no __len__",)),
    "a length that raises": (
        seen(replace(MADE, length=None, no_length="OSError: x")),
        "dataset",
        Level.PROBLEM,
        ("len() raises OSError: x",),
    ),
    "empty": (seen(replace(MADE, length=0)), "dataset", Level.PROBLEM, ("has no samples",)),
    "iterable": (seen(replace(MADE, length=None, is_iterable=True)), "dataset", Level.OK, ("an iterable dataset",)),
    "iterable and empty": (
        replace(WELL, made=replace(MADE, length=None, is_iterable=True), taken=()),
        "samples",
        Level.PROBLEM,
        ("gives no sample", "StopIteration"),
    ),
    "does not pickle": (
        seen(pickled=Pickled(None, "dataset.transform.fn", "a lock")),
        "pickling",
        Level.WARNING,
        ("because of dataset.transform.fn", "self.transform.fn = None", "fork only"),
    ),
    "does not pickle, for spawn": (
        seen(pickled=Pickled(None, "dataset.fn", "a lock"), method="spawn"),
        "pickling",
        Level.PROBLEM,
        ("started by spawn: none can be",),
    ),
    "does not pickle, and opens": (
        seen(replace(MADE, opened=("/a.h5",)), Pickled(None, "dataset.f", "h5py")),
        "pickling",
        Level.WARNING,
        (),
    ),
    "dies when pickled": (seen(pickled=DIED, method="spawn"), "pickling", Level.PROBLEM, ("segmentation fault",)),
    "large": (seen(pickled=Pickled(1 << 30)), "pickling", Level.NOTE, ("1.0 GiB", "holdfast.share")),
    "large, for spawn": (seen(pickled=Pickled(1 << 30), method="spawn"), "pickling", Level.WARNING, ("1.0 GiB",)),
    "opens": (
        seen(replace(MADE, opened=("/data/a.h5",))),
        "before fork",
        Level.PROBLEM,
        ("open: /data/a.h5", "h5py is imported", 'multiprocessing_context="spawn"'),
    ),
    "opens many": (
        seen(replace(MADE, opened=tuple(map(str, range(9))))),
        "before fork",
        Level.PROBLEM,
        ("9 files or connections are open", "and 4 more"),
    ),
    "opens, for spawn": (seen(replace(MADE, opened=("/a",)), method="spawn"), "before fork", Level.OK, ()),
    "starts threads": (
        seen(replace(MADE, python_threads=("reader",))),
        "before fork",
        Level.WARNING,
        ("thread reader",),
    ),
    "native threads": (seen(replace(MADE, native_threads=3)), "before fork", Level.WARNING, ("3 threads of native",)),
    "CUDA": (seen(replace(MADE, has_cuda=True)), "before fork", Level.WARNING, ("initialises CUDA",)),
    "CUDA samples": (
        seen(replace(MADE, has_cuda=True), sample=replace(SAMPLE, has_cuda=True)),
        "before fork",
        Level.PROBLEM,
        ("tensors on cuda", 'device="cuda"'),
    ),
    "opens later": (seen(around=Around(opened=("/a.h5",))), "before fork", Level.NOTE, ("open: /a.h5",)),
    "opens nothing": (WELL, "before fork", Level.OK, ("it imports h5py",)),
    "a sample raises": (
        seen(sample=Raised("ValueError: bad", "data.py:9 in x")),
        "samples",
        Level.PROBLEM,
        ("sample 0 raises ValueError: bad", "holdfast scan data:photos"),
    ),
    "a sample crashes": (seen(sample=DIED), "samples", Level.PROBLEM, ("segmentation fault", 'on_error="skip"')),
    "a sample hangs": (seen(sample=HUNG), "samples", Level.PROBLEM, ("sample_timeout=30",)),
    "random": (
        seen(sample=replace(SAMPLE, differs_at="sample[0]")),
        "same sample twice",
        Level.NOTE,
        ("dataset[0][0]", 'rng="sample"'),
    ),
    "not by seed": (
        seen(sample=replace(SAMPLE, differs_at="sample", differs_seeded=True)),
        "same sample twice",
        Level.WARNING,
        ("whatever is seeded",),
    ),
    "a generator of its own": (
        seen(
            replace(MADE, generators=("dataset.rng",)), sample=replace(SAMPLE, differs_at="sample", differs_seeded=True)
        ),
        "same sample twice",
        Level.WARNING,
        ("dataset.rng is a random generator", "self.rng = np.random.default_rng"),
    ),
    "slow": (
        seen(sample=replace(SAMPLE, again_s=2.5)),
        "sample time and memory",
        Level.NOTE,
        ("2.5 s", "holdfast tune"),
    ),
    "greedy": (seen(sample=replace(SAMPLE, peak_bytes=3 << 30)), "sample time and memory", Level.WARNING, ("3.0 GiB",)),
    "no peak": (seen(sample=replace(SAMPLE, peak_bytes=None)), "sample time and memory", Level.OK, ("588.0 KiB each",)),
    "as it should be": (WELL, "sample time and memory", Level.OK, ("10 ms, the first 0.20 s", "1.0 MiB of memory")),
}


def words_of(finding: Finding) -> str:
    return "\n".join((finding.what, *finding.evidence, finding.consequence, *finding.remedy))


@pytest.mark.parametrize("what", SEEN)
def test_what_was_seen_is_judged(what: str) -> None:
    """By the check that it concerns: level and words; and every finding has all of its parts."""
    sight, check, level, words = SEEN[what]
    found = findings(sight)
    (finding,) = [one for one in found if one.check == check]
    assert finding.level is level
    assert [word for word in words if word not in words_of(finding)] == []
    for one in found:
        assert not any("\n" in line for line in (one.what, *one.evidence, one.consequence, *one.remedy))
        parts = (one.evidence, one.consequence, one.remedy)
        assert all(parts) if one.level is not Level.OK else not any(parts)


def test_a_way_out_is_not_named_where_it_is_none() -> None:
    """Not spawn for what does not pickle, nor fork for what has files open."""
    found = findings(SEEN["does not pickle, and opens"][0])
    assert "multiprocessing_context" not in "".join(map(words_of, found))


@pytest.mark.parametrize("what", SEEN)
def test_a_command_to_paste_is_quoted(what: str) -> None:
    """A file may have a space in its name."""
    lines = [line for one in findings(replace(SEEN[what][0], target="my data.py:x")) for line in one.remedy]
    assert all("'my data.py:x'" in line for line in lines if "my data.py" in line)


def test_of_a_dataset_that_is_well_every_check_says_so() -> None:
    assert [(one.check, one.level) for one in findings(WELL)] == [(check.NAME, Level.OK) for check in checks.ALL]


@pytest.mark.parametrize("what", ["raises", "crashes", "hangs", "no torch"])
def test_of_a_dataset_that_was_not_made_nothing_else_is_said(what: str) -> None:
    assert [one.check for one in findings(SEEN[what][0])] == ["dataset"]


@pytest.mark.parametrize(
    ("count", "length", "indices"),
    [(4, 100, [0, 33, 66, 99]), (4, 3, [0, 1, 2]), (1, 100, [0]), (4, 0, []), (2, None, [0, 1]), (4, 5, [0, 1, 3, 4])],
)
def test_samples_are_taken_from_all_over_the_dataset(count: int, length: int | None, indices: list[int]) -> None:
    """The first and the last are among them."""
    assert spread(count, length) == indices


def test_durations_are_read_at_a_glance() -> None:
    assert [duration(value) for value in (0.0000246, 0.0012, 0.25, 2.5)] == ["0.025 ms", "1.2 ms", "0.25 s", "2.5 s"]
