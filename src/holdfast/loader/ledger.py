"""What a loader keeps account of over all its epochs: incidents, counts, samples passed over or known to be bad.

Runs in: main process.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from holdfast import counted
from holdfast.errors import TooManySkipped
from holdfast.events import Teller
from holdfast.incident import Incident, Incidents, bounded_repr
from holdfast.loader.notices import Notices
from holdfast.loader.policy import AUTO, Policy
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

    def __init__(self, policy: Policy, dataset: Any, *, reads_file: bool = True, is_iterable: bool = False) -> None:
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
        self.notices = Notices(self.skipped)
        self.known = KnownBad()
        self._file: SkippedFile | None = None
        self._withdrawn_in: int | None = None  # the epoch of the last withdrawal
        if policy.skipped_file is not None and reads_file:
            self._file = SkippedFile(policy.skipped_file, _length(dataset))
            for index, reason in self._file.read().items():
                self.known.add(index, reason)
        # An iterable has no indices that could be left out: its elements are tried again in each run.
        self._in_file = 0 if is_iterable else len(self.known)
        if self._in_file:
            listed = f"{plural(self._in_file, 'sample')} listed in {self._file}"
            self.notices.add(f"{listed} will not be loaded. To try again, delete the file")

    def take_seed(self, seed: int) -> None:
        """The first seed drawn is the loader's: all that is to be the same in each run depends on it."""
        if not self._has_seed:
            self.seed, self._has_seed = seed, True

    def note(self, incident: Incident) -> None:
        self.run.note(incident)
        self.incidents.add(incident)
        self.last_incident = incident
        self._teller.tell(incident)
        if self.counters.restarts or self.counters.supervisor_restarts:
            self.notices.restarted(incident)

    def end(self) -> None:
        """The loader is closed. One that is used again begins another record."""
        self.run.end()
        self._teller.end()
        self.notices.end()

    def pass_over(self, sample: SkippedSample, blame: Blame, *, is_known: bool = False) -> None:
        """A sample was skipped or replaced. `is_known`: without being tried."""
        self.skipped.append(sample)
        self.notices.passed_over(sample, is_known=is_known)
        self.counters.skipped += 1
        self.run.note_skipped(sample.epoch, sample.index, sample.reason, sample.replaced_by)
        self.remember(sample.index, sample.reason, blame)

    def remember(self, index: Any, reason: str, blame: Blame) -> None:
        """A sample is not to be tried again, as far as it is to blame."""
        if blame is Blame.NOBODY:
            return
        is_new = self.known.add(index, reason, self.epoch)
        if is_new and blame is Blame.ITSELF and self._file is not None and self._withdrawn_in != self.epoch:
            try:
                self._file.append(index, reason)
            except OSError as error:  # the run is worth more than the note
                what = f"sample {bounded_repr(index)} is not noted"
                self.notices.add(f"{self._file} cannot be written ({error}): {what}")

    def withdraw(self) -> list[str]:
        """What this loader has noted in the file may be the storage's fault: it does not count for later runs.

        Nothing more is noted in this epoch: results that are on their way may be of the same outage. Returns what an
        error is to say of it.
        """
        self._withdrawn_in = self.epoch
        if self._file is None:
            return []
        try:
            self._file.withdraw()
        except OSError as error:
            return [f"{self._file} cannot be written ({error}): what this run has noted there is not withdrawn"]
        return [f"What this run has noted in {self._file} is withdrawn: the next run tries these samples again"]

    # -- too many ----------------------------------------------------------------------------------------------------

    def check_number(self, skipped: int, epoch_samples: int | None) -> None:
        """Raise if more samples of an epoch were passed over than the user allows."""
        limit, allowed = self.policy.max_skipped, self.policy.most_skipped(epoch_samples or 0)
        if allowed is None or skipped <= allowed:
            return
        auto = f" ({int(allowed):,} here: a tenth of the epoch, but at least 10)" if limit == AUTO else ""
        many = plural(skipped, "sample")
        raise self._too_many(
            f"{many} of this epoch could not be loaded, more than max_skipped={limit} allows{auto}",
            "see that the data can be reached; look at loader.skipped_samples and .incidents; or raise max_skipped",
        )

    def refuse_nothing(self, tried: int, left_out: int) -> None:
        """An epoch has delivered nothing: raise, unless a command of ours has done the loading."""
        if not self.notices.is_for_command:
            raise self._too_many(
                f"no sample of this epoch was delivered, which is an error for every max_skipped: "
                f"{tried} tried and given up, {left_out} left out as known to be bad",
                "see that the data can be reached; look at loader.skipped_samples and loader.incidents",
            )

    def refuse_known(self, number: int) -> None:
        """A sampler gives nothing but samples that are known to be bad: raise, unless it is for a command of ours."""
        if not self.notices.is_for_command:
            raise self._too_many(
                f"the last {number} samples that the sampler gave are all known to be bad",
                "see that the data can be reached; look at loader.skipped_samples and loader.incidents",
            )

    def no_substitute(self, batch: int) -> TooManySkipped:
        """With "replace": all samples that could be delivered in a batch are known to be bad."""
        return TooManySkipped("\n".join([f"every sample that could stand in batch {batch} is bad", *self._left_out()]))

    def _too_many(self, what: str, remedy: str) -> TooManySkipped:
        """The error that ends an epoch. The storage may be to blame: what this run found bad is tried again later."""
        self.known.forget_found()
        last = [f"  {bounded_repr(sample.index)}: {sample.reason}" for sample in self.skipped[-5:]]
        lines = [what, "The last of them:", *last, *self.withdraw(), f"  try   {remedy}", *self._left_out()]
        return TooManySkipped("\n".join(lines))

    def _left_out(self) -> list[str]:
        """The remedy for samples that are not tried because the file lists them, if there are any."""
        if not self._in_file:
            return []
        listed = f"{plural(self._in_file, 'sample')} listed in {self._file}"
        return [f"  try   delete the file, so that the {listed} will be tried again"]


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None
