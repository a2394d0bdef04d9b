"""What a loader keeps account of over all its epochs: incidents, counts, samples passed over or known to be bad.

Runs in: main process.
"""

from __future__ import annotations

import warnings
from enum import Enum
from typing import Any

from holdfast import counted
from holdfast.errors import HoldfastWarning, TooManySkipped
from holdfast.events import Teller
from holdfast.incident import Incident, Incidents, bounded_repr
from holdfast.loader.policy import Policy
from holdfast.loader.run import Run
from holdfast.loader.skips import KnownBad, SkippedFile, SkippedSample
from holdfast.loader.stats import Counters
from holdfast.words import plural


class Blame(Enum):
    """How surely a sample is to blame for not being loaded, and so how long it is remembered."""

    ITSELF = "it raised, crashed or hung: remembered between runs"
    PERHAPS = "its worker was killed from outside while loading it, each time: remembered in this run"
    NOBODY = "its batch could not be made: not remembered"


class Ledger:
    """The accounts of one loader. `epoch` counts its iterators, from 0."""

    def __init__(self, policy: Policy, dataset: Any, *, reads_file: bool = True) -> None:
        self.policy = policy
        self.epoch = -1
        self.seed = 0
        self._has_seed = False
        self.has_been_ready = False  # one of its workers: what they start with is good
        self.incidents = Incidents()
        self.last_incident: Incident | None = None
        self.counters = Counters()
        self.run = Run(self.counters, is_recorded=policy.record)
        self._teller = Teller(counted.LOADER)
        self.skipped: list[SkippedSample] = []
        self.known = KnownBad()
        self._file: SkippedFile | None = None
        if policy.skipped_file is not None and reads_file:
            self._file = SkippedFile(policy.skipped_file, _length(dataset))
            for index, reason in self._file.read().items():
                self.known.add(index, reason)

    def take_seed(self, seed: int) -> None:
        """The first seed drawn is the loader's: all that is to be the same in each run depends on it."""
        if not self._has_seed:
            self.seed, self._has_seed = seed, True

    def note(self, incident: Incident) -> None:
        self.run.note(incident)
        self.incidents.add(incident)
        self.last_incident = incident
        self._teller.tell(incident)

    def end(self) -> None:
        """The loader is closed. One that is used again begins another record."""
        self.run.end()
        self._teller.end()

    def pass_over(self, sample: SkippedSample, blame: Blame) -> None:
        """A sample was skipped or replaced."""
        self.skipped.append(sample)
        self.counters.skipped += 1
        self.run.note_skipped(sample.epoch, sample.index, sample.reason, sample.replaced_by)
        self.remember(sample.index, sample.reason, blame)

    def remember(self, index: Any, reason: str, blame: Blame) -> None:
        """A sample is not to be tried again, as far as it is to blame."""
        if blame is Blame.NOBODY:
            return
        is_new = self.known.add(index, reason)
        if is_new and blame is Blame.ITSELF and self._file is not None:
            self._write_down(self._file, index, reason)

    def _write_down(self, file: SkippedFile, index: Any, reason: str) -> None:
        try:
            file.append(index, reason)
        except OSError as error:  # the run is worth more than the note
            what = f"sample {bounded_repr(index)} is not noted"
            message = f"skipped_file={str(file.path)!r} cannot be written ({error}): {what}"
            warnings.warn(message, HoldfastWarning, stacklevel=2)

    def check_number(self, skipped: int, epoch_samples: int | None) -> None:
        """Raise if more samples of an epoch were passed over than the user allows."""
        limit = self.policy.max_skipped
        if limit is None:
            return
        allowed = limit if isinstance(limit, int) else limit * (epoch_samples or 0)
        if skipped > allowed:
            recent = "\n".join(f"  {bounded_repr(sample.index)}: {sample.reason}" for sample in self.skipped[-5:])
            raise TooManySkipped(
                f"{plural(skipped, 'sample')} of this epoch could not be loaded, more than max_skipped={limit} allows\n"
                f"The last of them:\n{recent}\n"
                f"  try   look at loader.skipped_samples and loader.incidents, or raise max_skipped"
            )


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None
