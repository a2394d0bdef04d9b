"""Asks for the count of loads while another thread loads and unloads a library: neither may wait for the other.

Arguments: a library, seconds. Says "done" at the end.

Runs in: a process of its own, which is ended from outside if it hangs.
"""

from __future__ import annotations

import _ctypes
import sys
import threading
import time

from holdfast.diagnosis.native.loads import LibraryWatch

library, seconds = sys.argv[1], float(sys.argv[2])
sys.setswitchinterval(1e-6)  # the interpreter's lock changes hands wherever it can
watch = LibraryWatch()
is_over = threading.Event()


def load_and_unload() -> None:
    while not is_over.is_set():
        _ctypes.dlclose(_ctypes.dlopen(library, 2))  # with the interpreter's lock held, as an import does it


thread = threading.Thread(target=load_and_unload)
thread.start()
end = time.monotonic() + seconds
seen = 0
while time.monotonic() < end:
    seen += watch.changed()
is_over.set()
thread.join()
print("done" if seen else "no load was seen")
