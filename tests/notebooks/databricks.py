"""Three programs as users of Databricks write them, as cells: from an article on `ProcessExitedException` there.

What they did with `mp.Pool` and `mp.Process` they do with `holdfast.spawn`; the rest is as it was: a result in a
managed dict, results in a queue, work and results in two queues. `process_data` is what may go wrong.
Runs in: the test process.
"""

from __future__ import annotations

START = """
import logging, os, signal, time
import torch.multiprocessing as mp
import holdfast

logging.basicConfig(level=logging.ERROR)
data_list = [1, 2, 3, 4]

def process_data(data):
    if data == 3 and FAULT == "raises":
        raise ValueError("bad record")
    if data == 3 and FAULT == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if data == 3 and FAULT == "hangs":
        time.sleep(600)
    return data * data
"""

MANAGED_DICT = """
def worker_function(rank, data_list, return_dict):
    data = data_list[rank]
    try:
        result = process_data(data)
        return_dict[data] = result
    except Exception as e:
        logging.exception(f"Error in worker process: {e}")
        return_dict[data] = None  # Indicate failure

with mp.Manager() as manager:
    return_dict = manager.dict()
    try:
        holdfast.spawn(worker_function, args=(data_list, return_dict), nprocs=len(data_list), OPTIONS)
    except mp.ProcessExitedException as error:
        print("caught", error)
    print("results", sorted(return_dict.items()))
"""

RESULT_QUEUE = """
def worker_function(rank, data_list, queue):
    data = data_list[rank]
    try:
        result = process_data(data)
        queue.put((data, result))
    except Exception as e:
        logging.exception(f"Error in worker process: {e}")
        queue.put((data, None))

queue = mp.get_context("METHOD").Queue()
context = holdfast.spawn(worker_function, args=(data_list, queue), nprocs=len(data_list), join=False, OPTIONS)
try:
    while not context.join():
        pass
    print("results", sorted(queue.get(timeout=60) for _ in data_list))
except mp.ProcessExitedException as error:
    print("caught", error)
queue.close()
"""

TWO_QUEUES = """
def worker_function(rank, data_queue, result_queue):
    while True:
        data = data_queue.get()
        if data is None:
            break  # Sentinel value to signal process termination
        try:
            result_queue.put((data, process_data(data)))
        except Exception as e:
            logging.exception(f"Error in worker process: {e}")
            result_queue.put((data, None))

nprocs = max(2, holdfast.available_cpus())
data_queue, result_queue = mp.get_context("METHOD").Queue(), mp.get_context("METHOD").Queue()
for data in data_list + [None] * nprocs:
    data_queue.put(data)
try:
    holdfast.spawn(worker_function, args=(data_queue, result_queue), nprocs=nprocs, OPTIONS)
    print("results", sorted(result_queue.get(timeout=60) for _ in data_list))
except mp.ProcessExitedException as error:
    print("caught", error)
data_queue.cancel_join_thread()
data_queue.close()
result_queue.close()
"""

PROGRAMS = {"managed dict": MANAGED_DICT, "result queue": RESULT_QUEUE, "two queues": TWO_QUEUES}


def cells(fault: str, method: str, timeout_s: float | None = None) -> list[str]:
    """The definitions, then the three programs."""
    options = f'start_method="{method}", timeout={timeout_s}'
    programs = [text.replace("OPTIONS", options).replace("METHOD", method) for text in PROGRAMS.values()]
    return [f"FAULT = {fault!r}\n{START}", *programs]
