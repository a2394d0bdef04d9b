"""Finding, in the memory of an alternate signal stack, what the kernel wrote there when a signal came.

    higher addresses   state of the vector unit        its size depends on the CPU
                       siginfo                         304 bytes after the ucontext
                       ucontext: flags, link, stack (base, flags, size), 23 registers, ...
    lower addresses    return address, then the handler's own frames

The frame is found by the stack's base and size, which the kernel repeats in it. The first signal lies on top: one that
came while its handler ran lies further down. Bytes of an older signal may still be there, so a frame counts only if
its signal is the one the process died of.

x86_64 Linux. Pure: bytes in, `Frame` out. Runs in: main | supervisor process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from holdfast.diagnosis.evidence import Frame

_STACK_IN_UCONTEXT = 16
_REGISTERS_IN_UCONTEXT = 40
_SIGINFO_IN_UCONTEXT = 304
_BYTES_NEEDED = _SIGINFO_IN_UCONTEXT + 24

_RSP, _RIP, _SELECTORS, _ERROR, _TRAP = 15, 16, 18, 19, 20  # in the order of the kernel's struct sigcontext
_USER_CODE_SELECTOR = 0x33  # of 64-bit code: bytes that only look like a frame do not have it
_BREAKPOINT, _PAGE_FAULT = 3, 14
_SI_KERNEL = 0x80


def find_frame(memory: bytes, base: int, size: int, exit_signal: int, own_pid: int) -> Frame | None:
    """The outermost frame of `exit_signal` on the stack of process `own_pid` that lay at `base`."""
    for at in _ucontexts(memory, base, size):
        frame = _frame(memory, at, own_pid)
        if frame is not None and frame.signal == exit_signal:
            return frame
    return None


def _ucontexts(memory: bytes, base: int, size: int) -> Iterator[int]:
    """Where a ucontext may begin, from the top of the stack down."""
    mark = struct.pack("<Q", base)
    at = memory.rfind(mark)
    while at >= 0:
        start = at - _STACK_IN_UCONTEXT
        if 0 <= start <= len(memory) - _BYTES_NEEDED and struct.unpack_from("<Q", memory, at + 16)[0] == size:
            yield start
        at = memory.rfind(mark, 0, at + len(mark) - 1)


def _frame(memory: bytes, at: int, own_pid: int) -> Frame | None:
    registers = struct.unpack_from("<23Q", memory, at + _REGISTERS_IN_UCONTEXT)
    if registers[_SELECTORS] & 0xFFFF != _USER_CODE_SELECTOR:
        return None
    number, _, code = struct.unpack_from("<iii", memory, at + _SIGINFO_IN_UCONTEXT)
    address, sender = _address_and_sender(memory, at + _SIGINFO_IN_UCONTEXT + 16, code)
    # of a signal that was sent, the kernel leaves what it knows of an older fault in these two
    is_page_fault = code > 0 and registers[_TRAP] == _PAGE_FAULT
    return Frame(
        signal=number,
        code=code,
        sender_pid=None if sender == own_pid else sender,
        address=address,
        # of int3, which is a byte long, the kernel gives the instruction after it
        instruction_pointer=registers[_RIP] - (code > 0 and registers[_TRAP] == _BREAKPOINT),
        stack_pointer=registers[_RSP],
        error_code=registers[_ERROR] if is_page_fault else 0,
    )


def _address_and_sender(memory: bytes, at: int, code: int) -> tuple[int | None, int | None]:
    """One union in siginfo, by si_code: who sent the signal, or which address caused it.

    SI_KERNEL is a general protection fault, such as an access to an address of more than 48 bits: si_addr is 0 then,
    and not the address.
    """
    if code <= 0:
        return None, struct.unpack_from("<i", memory, at)[0]
    return (None, None) if code == _SI_KERNEL else (struct.unpack_from("<Q", memory, at)[0], None)
