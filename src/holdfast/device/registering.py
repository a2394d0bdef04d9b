"""Registering memory with the driver, in a thread of its own, so that no batch waits for another's memory.

Registering takes 0.06 to 0.4 s per GB. A batch that is due waits for its own memory alone: that goes to the front.
It is done in one thread also because CUDA keeps the last error of each thread: after a refusal the next kernel that
the user starts would be reported as failed, with our error, if it were done in his.

Invariants:
- The thread holds memory only while it registers it, and never the pool.
- After the first refusal nothing is registered any more; whoever asks is told no at once.

Runs in: main process (a thread of it).
"""

from __future__ import annotations

import enum
import threading
from collections import deque

from holdfast.device.protocols import Registrar

_LOOK_S = 1.0
_ENDS_WITHIN_S = 10.0


class State(enum.Enum):
    ASKED = enum.auto()
    PINNED = enum.auto()
    REFUSED = enum.auto()
    GONE = enum.auto()


class Pin:
    """A range of memory that is to be pinned, or is."""

    __slots__ = ("address", "nbytes", "state")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.state = State.ASKED


class Registering:
    """The thread, what it has to do, and what it has done."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar
        self._changed = threading.Condition()
        self._asked: deque[tuple[Pin, object]] = deque()
        self._in_hand: Pin | None = None
        self._thread: threading.Thread | None = None
        self._ended = False
        self.refusal = ""  # the driver's words, once it has refused

    def ask(self, pin: Pin, memory: object) -> None:
        """Have it registered in time. `memory` keeps the mapping alive until then."""
        with self._changed:
            if self.refusal or self._ended:
                pin.state = State.REFUSED
                return
            self._asked.append((pin, memory))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="holdfast-pin", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self, pin: Pin) -> bool:
        """Wait until it is registered, before all others. False: it was refused."""
        if pin.state is State.ASKED:
            with self._changed:
                self._put_first(pin)
                while self._is_alive() and pin.state is State.ASKED:
                    self._changed.wait(_LOOK_S)
        return pin.state is State.PINNED

    def undo(self, pin: Pin) -> None:
        """The memory is no longer pinned when this returns. Whoever may read it must be done."""
        with self._changed:
            self._asked = deque(item for item in self._asked if item[0] is not pin)
            while self._in_hand is pin and self._is_alive():
                self._changed.wait(_LOOK_S)
            was_pinned, pin.state = pin.state is State.PINNED, State.GONE
        if was_pinned:
            self._registrar.unregister(pin.address)

    def end(self) -> None:
        """Nothing is registered any more. What is registered stays."""
        with self._changed:
            self._ended = True
            while self._asked:
                self._asked.popleft()[0].state = State.REFUSED
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_ENDS_WITHIN_S)

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _put_first(self, pin: Pin) -> None:
        for at, item in enumerate(self._asked):
            if item[0] is pin:
                del self._asked[at]
                self._asked.appendleft(item)
                return

    def _serve(self) -> None:
        try:
            self._registrar.enter_thread()
            while (item := self._next()) is not None:
                self._register(*item)
                del item
        except BaseException as error:
            self._refuse_all(f"{type(error).__name__}: {error}")

    def _next(self) -> tuple[Pin, object] | None:
        with self._changed:
            while not self._asked:
                if self._ended:
                    return None
                self._changed.wait()
            item = self._asked.popleft()
            self._in_hand = item[0]
            return item

    def _register(self, pin: Pin, memory: object) -> None:
        why = self._registrar.register(pin.address, pin.nbytes)
        del memory
        with self._changed:
            if why:  # memory is full, say, or locked memory limited: more of it would be refused as well
                self._refuse_all(f"{why}, for {pin.nbytes} bytes")
                return
            self._in_hand, pin.state = None, State.PINNED
            self._changed.notify_all()

    def _refuse_all(self, why: str) -> None:
        """Why is known by the time that anybody is told no."""
        with self._changed:
            self.refusal = self.refusal or why
            if self._in_hand is not None:
                self._in_hand.state, self._in_hand = State.REFUSED, None
            while self._asked:
                self._asked.popleft()[0].state = State.REFUSED
            self._changed.notify_all()
