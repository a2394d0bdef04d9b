"""Runs cells in a Jupyter kernel, by nbclient, and prints as JSON what each of them showed.

Usage: run_notebook.py '[{"code": "...", "interrupt_at": "..."}, ...]'
A cell with `interrupt_at` is interrupted, as by the button, when that text appears in its output. Printed for each:
`shown` (stdout, stderr and results), `error` (name of the exception, or ""), `left`: processes of the kernel's that are
there a while after the cell has ended, without those that multiprocessing keeps for itself.
Runs in: a child of the test process.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from typing import Any

import nbformat
import psutil
from nbclient import NotebookClient

CELL_TIMEOUT_S = 60
LEFT_AFTER_S = 10.0
_KEPT_BY_MULTIPROCESSING = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Client(NotebookClient):
    """Interrupts cells, and notes what they leave."""

    def __init__(self, cells: list[dict[str, str]]) -> None:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell["code"]) for cell in cells])
        super().__init__(notebook, timeout=CELL_TIMEOUT_S, allow_errors=True, kernel_name="python3")
        self.interrupt_at = [cell.get("interrupt_at", "") for cell in cells]
        self.left: dict[int, list[str]] = {}
        self._seen = ""
        self._interrupts: list[Any] = []
        self.on_cell_start = self._begin
        self.on_cell_executed = self._end

    async def _begin(self, cell: Any, cell_index: int) -> None:
        self._seen = ""

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] == "stream":
            self._seen += msg["content"]["text"]
        wanted = self.interrupt_at[cell_index]
        if wanted and wanted in self._seen:
            self.interrupt_at[cell_index] = ""
            self._interrupts.append(asyncio.ensure_future(self.km.interrupt_kernel()))
        return super().process_message(msg, cell, cell_index)

    async def _end(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        kernel = psutil.Process(self.km.provisioner.pid)
        deadline = time.monotonic() + LEFT_AFTER_S
        while (left := processes_of(kernel)) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        self.left[cell_index] = left


def _command(process: psutil.Process) -> str:
    """Nothing of one that has ended meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def processes_of(kernel: psutil.Process) -> list[str]:
    commands = [_command(child) for child in kernel.children(recursive=True)]
    return [command for command in commands if not any(name in command for name in _KEPT_BY_MULTIPROCESSING)]


def shown(outputs: list[Any]) -> str:
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return "".join(texts) + "".join("\n".join(output.get("traceback", [])) for output in outputs)


def main(cells: list[dict[str, str]]) -> None:
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # with it a kernel does not show what is written to descriptors 1 and 2
    client = Client(cells)
    client.execute()
    said = [
        {
            "shown": _COLOURS.sub("", shown(cell.outputs)),
            "error": next((output["ename"] for output in cell.outputs if output["output_type"] == "error"), ""),
            "left": client.left.get(number, []),
        }
        for number, cell in enumerate(client.nb.cells)
    ]
    print(json.dumps(said))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
