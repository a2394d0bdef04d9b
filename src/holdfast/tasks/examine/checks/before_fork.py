"""Importing the module and making the dataset opens nothing, and starts nothing, that does not survive a fork.

Pure. Runs in: main process.
"""

from __future__ import annotations

from holdfast.doctor import hazards
from holdfast.doctor.finding import Finding, Level, ok, some_of
from holdfast.tasks.examine.seen import Made, Pickled, Seen
from holdfast.words import plural

NAME = "before fork"


def judge(seen: Seen) -> list[Finding]:
    if not isinstance(seen.made, Made):
        return []
    made = seen.made
    if seen.start_method != "fork":
        return [ok(NAME, f"workers are started by {seen.start_method}, and inherit nothing")]
    found = [*_opened(seen, made), *_threads(seen, made), *_cuda(seen, made), *_opened_later(seen)]
    imported = [hazard.module for hazard in hazards.among(made.modules)]
    imports = f"; it imports {', '.join(imported)}, to be used in workers only" if imported else ""
    return found or [ok(NAME, f"nothing is opened, no thread is started{imports}")]


def _opened(seen: Seen, made: Made) -> list[Finding]:
    if not made.opened:
        return []
    return [
        Finding(
            NAME,
            Level.PROBLEM,
            f"{_open(len(made.opened))} open before the workers are forked",
            evidence=(
                *some_of(f"open: {path}" for path in made.opened),
                *_imported(made, has_threads=False),
            ),
            consequence="all workers share one handle and its position: wrong data, errors of the library, or a hang",
            remedy=(
                "if self.file is None: self.file = open(self.path)  # in __getitem__; in __init__: self.file = None",
                *_spawn(seen),
            ),
        )
    ]


def _spawn(seen: Seen) -> tuple[str, ...]:
    """Another way out, for a dataset that can be sent."""
    can_be_sent = isinstance(seen.pickled, Pickled) and seen.pickled.nbytes is not None
    return ('DataLoader(..., multiprocessing_context="spawn")  # workers inherit nothing',) if can_be_sent else ()


def _imported(made: Made, has_threads: bool) -> list[str]:
    found = (hazard for hazard in hazards.among(made.modules) if hazard.has_threads == has_threads)
    return [f"{hazard.module} is imported: {hazard.why}" for hazard in found]


def _open(number: int) -> str:
    return "a file or connection is" if number == 1 else f"{number} files or connections are"


def _threads(seen: Seen, made: Made) -> list[Finding]:
    if not made.python_threads and not made.native_threads:
        return []
    native = [f"{plural(made.native_threads, 'thread')} of native libraries"] if made.native_threads else []
    return [
        Finding(
            NAME,
            Level.WARNING,
            "importing or making the dataset starts threads before the workers are forked",
            evidence=(
                *some_of(f"thread {name}" for name in made.python_threads),
                *native,
                *_imported(made, has_threads=True),
            ),
            consequence="threads do not survive a fork, and the locks they hold stay held: a worker hangs on one",
            remedy=(
                "if self.client is None: self.client = connect()  # in __getitem__, not in __init__",
                *_spawn(seen),
            ),
        )
    ]


def _cuda(seen: Seen, made: Made) -> list[Finding]:
    if not made.has_cuda:
        return []
    on_device = any(sample.has_cuda for sample in seen.samples)
    return [
        Finding(
            NAME,
            Level.PROBLEM if on_device else Level.WARNING,
            "importing or making the dataset initialises CUDA before the workers are forked",
            evidence=("torch.cuda.is_initialized() is True", *(["samples are tensors on cuda"] if on_device else [])),
            consequence='what uses CUDA in a worker fails: "Cannot re-initialize CUDA in forked subprocess"',
            remedy=('DataLoader(..., device="cuda")  # load on the CPU; batches are moved, on a stream of their own',),
        )
    ]


def _opened_later(seen: Seen) -> list[Finding]:
    """Right where it is done in the worker; many programs ask for a sample before they make the loader."""
    if not seen.around.opened:
        return []
    return [
        Finding(
            NAME,
            Level.NOTE,
            "loading a sample leaves files or connections open: right in a worker, not before the fork",
            evidence=some_of(f"open: {path}" for path in seen.around.opened),
            consequence="a program that looks at dataset[0] before it makes the loader hands the handle to all workers",
            remedy=("shape = make_dataset()[0].shape  # look at a sample of another dataset object, and drop it",),
        )
    ]
