"""A run with a record: says "ready ID", and stays until its stdin ends or it is killed. Needs no torch.

write_record.py stay          note two incidents and a reading, then stay
write_record.py fork          the same, and a forked child that stays too: says its pid after the id
write_record.py fill          write incidents until the disk is full, begin another run, and say what is left
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

from holdfast.records import reader
from holdfast.records.writer import RunRecord
from unit.records import FACTS, Counted


def stay(*, with_child: bool) -> None:
    record = RunRecord.open(FACTS)
    record.note_incident({"cause": "was killed by SIGSEGV", "sample_index": 17})
    record.tick(0.0, Counted())
    record.tick(5.0, Counted(batches=1))
    record.note_incident({"cause": "hung"})
    child = os.fork() if with_child else None
    if child != 0:
        print("ready", record.id, child, flush=True)
    sys.stdin.read()
    if child != 0:
        record.close({"outcome": "finished"})


def fill() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        record = RunRecord.open(FACTS)
        ids = [record.note_incident({"cause": "hung", "evidence": "x" * 7000}) for _ in range(100)]
        record.tick(0.0, Counted())
        record.tick(5.0, Counted())
        record.close({})
        second = RunRecord.open(FACTS)
        second.note_incident({"cause": "hung"})
        second.close()
    run = reader.read(record.path) if record.path else None
    result = {
        "noted": len([one for one in ids if one]),
        "incidents": len(run.incidents) if run else None,
        "damaged": run.damaged_lines if run else None,
        "second": second.id,
        "warnings": [str(one.message) for one in said],
        "files": len(list(Path(os.environ["HOLDFAST_HOME"], "runs").glob("*"))) if record.path else 0,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill()
    else:
        stay(with_child=sys.argv[1] == "fork")
