"""From the registers of a crash to its place: library, symbol, instruction, and what that needs of the CPU.

    Evidence (frame, mappings) ──► mapping ──► library and offset ──► symbol
                                                             └──────► instruction ──► needs, lacks, is_trap

Each step goes as far as it can; one that cannot is named in `missing`, with the reason. Whatever the
input, nothing is raised: a diagnosis with less in it is better than none. Files are read here, so this runs where it
does not delay a replacement worker.

Runs in: main process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from holdfast.diagnosis.evidence import Evidence, Frame, Mapping, Place
from holdfast.diagnosis.native import cpu, elf, instruction
from holdfast.diagnosis.native.mappings import mapping_at

_DELETED = " (deleted)"

_T = TypeVar("_T")


def resolve(evidence: Evidence) -> Evidence:
    """The same evidence with its `place`, and with what could not be found out in `missing`.

    Unchanged where there is no frame, or where another process sent the signal: it does not matter then what the worker
    was doing.
    """
    try:
        return _resolved(evidence)
    except Exception as error:
        return dataclasses.replace(evidence, missing=(*evidence.missing, f"place: {_words(error)}"))


def _resolved(evidence: Evidence) -> Evidence:
    frame = evidence.frame
    if frame is None or frame.sender_pid is not None:
        return evidence
    if not evidence.mappings:
        note = "place: it is not known which libraries the worker had loaded where"
        return dataclasses.replace(evidence, missing=(*evidence.missing, note))
    notes: list[str] = []
    place = _place(frame, mapping_at(evidence.mappings, frame.instruction_pointer), notes)
    return dataclasses.replace(evidence, place=place, missing=(*evidence.missing, *notes))


def _place(frame: Frame, mapping: Mapping | None, notes: list[str]) -> Place:
    address = frame.instruction_pointer
    if mapping is None:
        return Place("", address)
    in_file = address - mapping.start + mapping.offset
    if not mapping.path.startswith("/"):  # [vdso], or code that was made at run time
        return Place(mapping.path, address - mapping.start if mapping.path else address)
    if mapping.path.endswith(_DELETED):
        notes.append(f"symbols: {mapping.path.removesuffix(_DELETED)} was replaced after the worker had loaded it")
        return Place(mapping.path.removesuffix(_DELETED), in_file)
    offset = _attempt("place", notes, lambda: elf.virtual_address(mapping.path, in_file), None)
    if offset is None:
        return Place(mapping.path, in_file)
    place = Place(mapping.path, offset, _attempt("symbols", notes, lambda: elf.symbol_at(mapping.path, offset), ""))
    # after a signal that the worker sent itself, by abort() for one, the instruction is a mere system call
    return _with_instruction(place, in_file, notes) if frame.code > 0 else place


def _with_instruction(place: Place, in_file: int, notes: list[str]) -> Place:
    code = _attempt("instruction", notes, lambda: instruction.code_at(place.library, in_file), b"")
    if not code:
        return place
    nothing = instruction.Instruction("", ())
    found = _attempt("instruction", notes, lambda: instruction.decode(code, place.offset), nothing)
    flags = cpu.cpu_flags()
    return dataclasses.replace(
        place,
        instruction=found.text,
        needs=found.needs,
        lacks=tuple(word for word in found.needs if word not in flags) if flags else (),
        is_trap=instruction.is_trap(code),
    )


def _attempt(what: str, notes: list[str], step: Callable[[], _T], otherwise: _T) -> _T:
    try:
        return step()
    except Exception as error:
        notes.append(f"{what}: {_words(error)}")
    return otherwise


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
