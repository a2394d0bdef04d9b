"""The killer: a process of its own that ends, or stops, processes of a loader at random moments.

It kills only while it is armed, and only while there is progress: a loader that is killed faster than it can load a
unit cannot deliver, whoever wrote it. So it waits for a delivery after some kills without one, and leaves a supervisor
alone until everything that was under way when the last one died has been delivered. A process that it has stopped it
mostly leaves to the loader to deal with. It also watches: a training loop that gets nothing for `STALLED_S` is sent
`STALLED_SIGNAL`; if that does not help, `STACKS_SIGNAL`, and it is killed.

It needs no torch, so it starts at once. Runs in: killer.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import select
import signal
import sys
import time

from .cells import Cells
from .family import Member, Role, find_family, is_alive

STALLED_S = 60.0
STALLED_SIGNAL = signal.SIGUSR1
STACKS_SIGNAL = signal.SIGUSR2
_KILL_AFTER_S = 60.0
_SLICE_S = 0.25
_AT_ONCE_S = 0.003
_SPARE_STOPPED_SHARE = 0.9

_FATAL = {
    signal.SIGKILL: 4,
    signal.SIGTERM: 2,
    signal.SIGSEGV: 2,
    signal.SIGBUS: 1,
    signal.SIGABRT: 1,
    signal.SIGILL: 1,
    signal.SIGFPE: 1,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Orders:
    """What a killer is told. `capacity` is the number of units under way at once."""

    training_pid: int
    method: str
    seed: int
    kills: int
    mean_pause_s: float
    capacity: int
    patience: int
    """Kills without a delivery in between, before it waits for one."""
    settle: int
    """Deliveries after each kill, before the next."""
    supervisor_share: float
    stop_share: float
    supervisor_stop_share: float


@dataclasses.dataclass(frozen=True, slots=True)
class Kill:
    """One signal that was sent to a process that was alive."""

    time_s: float
    pid: int
    role: Role
    signal: str
    supervisor_is_stopped: bool

    @property
    def is_stop(self) -> bool:
        """Whether the process was stopped and not ended."""
        return self.signal == "SIGSTOP"


class Killer:
    """Carries out its orders until its standard input is closed."""

    def __init__(self, orders: Orders, cells: Cells) -> None:
        self._orders, self._cells = orders, cells
        self._random = random.Random(orders.seed)
        self._fruitless = 0
        self._delivered_at_kill = self._delivered_at_supervisor = -1
        self._progress = (-1, time.monotonic())
        self._has_warned = False

    def run(self) -> None:
        """Kill and watch."""
        while self._rest(self._choose_pause_s()):
            self._watch()
            if self._may_kill():
                self._kill_somebody()

    def _choose_pause_s(self) -> float:
        if self._random.random() < 0.1:
            return self._random.uniform(0, _AT_ONCE_S)  # while a replacement starts
        return self._random.expovariate(1 / self._orders.mean_pause_s)

    def _rest(self, seconds: float) -> bool:
        """Wait, and keep watch meanwhile. False: it is over."""
        end = time.monotonic() + seconds
        while True:
            left = max(0.0, end - time.monotonic())
            if select.select([sys.stdin], [], [], min(left, _SLICE_S))[0]:
                return False
            if left <= _SLICE_S:
                return True
            self._watch()

    def _watch(self) -> None:
        delivered, now = self._cells.delivered, time.monotonic()
        if delivered != self._progress[0]:
            self._progress, self._has_warned = (delivered, now), False
        silent_s = now - self._progress[1]
        if silent_s > STALLED_S + _KILL_AFTER_S:
            os.kill(self._orders.training_pid, STACKS_SIGNAL)
            time.sleep(1.0)
            os.kill(self._orders.training_pid, signal.SIGKILL)
        elif silent_s > STALLED_S and not self._has_warned:
            self._has_warned = True
            os.kill(self._orders.training_pid, STALLED_SIGNAL)

    def _may_kill(self) -> bool:
        if self._cells.delivered != self._delivered_at_kill:
            self._fruitless = 0
        if self._cells.delivered < self._delivered_at_kill + self._orders.settle:
            return False
        return (
            self._cells.is_armed and self._cells.kills < self._orders.kills and self._fruitless < self._orders.patience
        )

    def _kill_somebody(self) -> None:
        victim = self._choose_victim(find_family(self._orders.training_pid, self._orders.method))
        if victim is None:
            return
        delivered = self._cells.delivered
        if not self._send(victim, self._choose_signal(victim.role)):
            return
        self._fruitless += 1
        self._delivered_at_kill = delivered
        if victim.role == "supervisor":
            self._delivered_at_supervisor = delivered

    def _choose_victim(self, family: list[Member]) -> Member | None:
        if self._random.random() < _SPARE_STOPPED_SHARE:
            family = [member for member in family if not member.is_stopped]
        supervisors = [member for member in family if member.role == "supervisor"]
        workers = [member for member in family if member.role == "worker"]
        is_time = self._cells.delivered > self._delivered_at_supervisor + self._orders.capacity
        if supervisors and is_time and self._random.random() < self._orders.supervisor_share:
            return self._random.choice(supervisors)
        return self._random.choice(workers) if workers else None

    def _choose_signal(self, role: Role) -> signal.Signals:
        stop_share = self._orders.stop_share if role == "worker" else self._orders.supervisor_stop_share
        if self._random.random() < stop_share:
            return signal.SIGSTOP
        return self._random.choices(list(_FATAL), list(_FATAL.values()))[0]

    def _send(self, victim: Member, number: signal.Signals) -> bool:
        """Through a pidfd, looked at again once it is open: the number may be another's by now."""
        try:
            pidfd = os.pidfd_open(victim.pid)
        except ProcessLookupError:
            return False
        try:
            if not is_alive(victim):
                return False
            kill = Kill(time.monotonic(), victim.pid, victim.role, number.name, victim.supervisor_is_stopped)
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(pidfd)
        print(json.dumps(dataclasses.asdict(kill)), flush=True)
        self._cells.killed()
        return True


def main() -> None:
    """The arguments: orders as JSON, and the descriptor of the cells."""
    Killer(Orders(**json.loads(sys.argv[1])), Cells(int(sys.argv[2]))).run()


if __name__ == "__main__":
    main()
