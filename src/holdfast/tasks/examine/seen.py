"""What was seen of a dataset: plain data, made in the worker and judged in the main process.

Runs in: main | worker process.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.words import seconds


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of the user's code."""

    what: str
    """ "ValueError: bad header"."""
    where: str
    """ "data.py:31 in __getitem__"."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The process died, hung, or was refused memory: what the diagnosis says of it."""

    summary: str
    """Goes on from a name: "died of a segmentation fault"."""
    because: str
    evidence: tuple[str, ...]
    advice: tuple[str, ...]
    is_hang: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """Why, and what else was seen, each once."""
        return (self.because, *(line for line in self.evidence if line != self.because))


@dataclass(frozen=True, slots=True)
class Made:
    """The dataset is there, and this is what it took."""

    type_name: str
    is_iterable: bool
    """Without __getitem__: its samples come from an iterator."""
    length: int | None
    """None: it says none."""
    no_length: str
    """Why not: the exception; "" where there is no __len__, or a length."""
    seconds: float
    opened: tuple[str, ...] = ()
    """Files and connections that importing its module and making it left open."""
    python_threads: tuple[str, ...] = ()
    """By name, those it left running."""
    native_threads: int = 0
    """More of them, that Python knows nothing of."""
    has_cuda: bool = False
    modules: tuple[str, ...] = ()
    """All that is imported by now."""
    generators: tuple[str, ...] = ()
    """Attributes that are random generators of its own: "dataset.rng"."""


@dataclass(frozen=True, slots=True)
class Pickled:
    nbytes: int | None
    """None: it cannot be pickled."""
    path: str = ""
    """The attribute that cannot: "dataset.transform.fn"."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample, loaded twice, and where that gave two results, twice more with the same seeds."""

    index: int
    what: str
    """ "tuple of Tensor float32 3x224x224, int"."""
    seconds: float
    again_s: float
    nbytes: int
    """Of tensors, arrays, bytes and texts in it."""
    peak_bytes: int | None
    """The most memory that loading it took, beyond what was there before; None where that cannot be told."""
    differs_at: str = ""
    """Where the second differs from the first: "sample[0]"; "": nowhere."""
    differs_seeded: bool = False
    """Whether they differ with equal seeds too."""
    has_cuda: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """An attempt at a sample."""

    index: int
    result: Sample | Raised | Lost


@dataclass(frozen=True, slots=True)
class Around:
    """The worker after the last sample."""

    mapped: tuple[str, ...] = ()
    """Files of code that it has mapped."""
    opened: tuple[str, ...] = ()
    """What is open now and was not when the dataset was made."""


@dataclass(frozen=True, slots=True)
class Seen:
    target: str
    start_method: str
    """How the loader would start its workers."""
    made: Made | Raised | Lost | None
    """None: it was not tried, because torch cannot be imported."""
    pickled: Pickled | Lost | None = None
    """None, and no samples: the dataset could not be made."""
    taken: tuple[Taken, ...] = ()
    around: Around = Around()

    @property
    def samples(self) -> list[Sample]:
        """Those that could be loaded."""
        return [one.result for one in self.taken if isinstance(one.result, Sample)]


def duration(value_s: float) -> str:
    """ "1.2 s", "0.31 ms"."""
    if value_s >= 1:
        return seconds(value_s)
    return f"{value_s:.2f} s" if value_s > 0.099 else f"{value_s * 1000:.2g} ms"
