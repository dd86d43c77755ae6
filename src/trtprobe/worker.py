"""The inside of a worker: one process that keeps the product open and runs the cells it is given."""

from __future__ import annotations

import faulthandler
import gc
import os
import time
from pathlib import Path
from typing import Any, Dict, Mapping

import numpy as np

from trtprobe import ends
from trtprobe.answer import seal
from trtprobe.backends import Opened
from trtprobe.cell import TROUBLE, run_cell
from trtprobe.channel import Channel, identity
from trtprobe.processes import flush
from trtprobe.traces import Traces


def serve(channel: Channel, product: str, warm: bool, alone: bool) -> int:
    """Warm up, then run each cell that is ordered; returns after the last one, or when nobody asks any more.

    ``alone``: there will be one cell, and the process is not looked at after it.
    """
    opened = Opened(product)
    if warm:
        try:
            opened.backend().warm_up()
        except Exception as error:  # a cell tells what fails
            print("not warmed up: %s" % error, flush=True)
    server = Server(channel, opened, alone)
    if not alone:
        gc.collect()
        gc.freeze()  # what is there now stays, and need not be looked through after each cell
    channel.send({"ready": True})
    received = channel.receive()
    while received is not None and received[1] is not None and server.serve_one(received[0], received[1]):
        received = channel.receive()
    return 0


class Sender:
    """Hands what comes of a cell to the supervisor, sealed."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.pid = channel, os.getpid()

    def tell(self, result: Mapping[str, Any], *, final: bool = False) -> None:
        """Hand over a result, or what it is so far."""
        self._send({"result": "final" if final else "so far"}, seal(result, {}))

    def hand(self, number: int, outputs: Mapping[str, np.ndarray]) -> None:
        """Hand over the outputs of a build."""
        self._send({"build": number}, seal({}, outputs))

    def _send(self, words: Dict[str, Any], file: int) -> None:
        if os.getpid() != self.pid:
            os._exit(0)  # the cell forked itself, and its copy must not answer too
        self.channel.send(words, file)
        os.close(file)


class Server:
    """Runs cells, and judges after each whether the process may serve another."""

    def __init__(self, channel: Channel, opened: Opened, alone: bool) -> None:
        self.channel, self.opened, self.home, self.sender = channel, opened, Path.cwd(), Sender(channel)
        self.traces = None if alone else Traces()
        opened.on_open = self._look_again

    def _look_again(self) -> None:
        """Take the process as it is: opening the product changed it, not a cell."""
        if self.traces is not None:
            self.traces = Traces()

    def serve_one(self, order: Dict[str, Any], output: int) -> bool:
        """Run a cell that prints to ``output``; whether the process may serve another."""
        self.channel.send({"taken": True})
        outside = os.dup(1), os.dup(2)
        _print_to(output, output)
        os.close(output)
        done = self._run(order)
        if done["ended"]:  # what the process prints while it ends is still the cell's
            self.channel.send({"done": done})
            return False
        _print_to(*outside)
        for file in outside:
            os.close(file)
        os.chdir(self.home)
        return self.channel.send({"done": done})

    def _run(self, order: Dict[str, Any]) -> Dict[str, Any]:
        """Run a cell in its folder and hand over what comes of it; returns what is told of this process."""
        folder, started = Path(order["folder"]), time.perf_counter()
        os.chdir(str(folder))
        before = Path.cwd(), identity(1), identity(2)
        result = run_cell(order["spec"], self.sender, self.opened)
        seconds = time.perf_counter() - started
        ended = self._why_end(order, result, before)
        return {"seconds": seconds, "builder_seconds": self.opened.builder_seconds, "ended": ended}

    def _why_end(self, order: Dict[str, Any], result: Dict[str, Any], before: Any) -> str:
        """Say why this process can serve no other cell; nothing where it can."""
        if self.traces is None:
            return "it was for this cell alone"
        if result["ended"] not in ends.ENDED_WELL:
            return "the cell ended: %s" % result["ended"]
        if result.get(TROUBLE):
            return "the GPU's context reports an error"
        after = Path.cwd(), identity(1), identity(2)
        gc.collect()
        changed = self.traces.find()
        changed += ["the backend's " + name for name in self.opened.rebound()]
        changed += ["the working folder"] if after[0] != before[0] else []
        changed += ["where it prints"] if after[1:] != before[1:] else []
        changed += ["its connection"] if not self.channel.is_there() else []
        if changed:
            return "the cell changed or left: " + ", ".join(changed)
        return "the case is marked as dangerous" if order["dangerous"] else ""


def _print_to(out: int, err: int) -> None:
    """Let everything that this process prints from now on go to these files."""
    flush()
    os.dup2(out, 1)
    os.dup2(err, 2)
    faulthandler.enable(file=2)
