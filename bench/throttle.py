"""A TCP proxy that is slow: all its connections together pass so many bytes a second, as one line would."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable

CHUNK = 16 << 10
Pass = Callable[[int], Awaitable[None]]


class Throttle:
    """Listens on a free port of loopback in front of another; answers pass at ``rate`` bytes a second.

    What is asked passes at once. Use it as a context manager; ``passed`` counts the bytes of the answers.
    """

    def __init__(self, target: int, rate: float) -> None:
        """Name the port behind it; nothing is listened on yet."""
        self.target, self.rate = target, rate
        self.port, self.passed = 0, 0
        self._free = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Throttle:
        """Listen."""
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        self.port = started.result(timeout=10)
        return self

    def __exit__(self, *exc: object) -> None:
        """Close every connection."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                behind, before = await asyncio.open_connection("127.0.0.1", self.target)
                await asyncio.gather(_copy(reader, before, _at_once), _copy(behind, writer, self._in_turn))
        finally:
            writer.close()

    async def _in_turn(self, count: int) -> None:
        """Wait until the line has passed so many bytes: it is one line, whoever's turn it is."""
        self.passed += count
        self._free = max(self._free, time.monotonic()) + count / self.rate
        await asyncio.sleep(self._free - time.monotonic())


async def _at_once(count: int) -> None:
    del count


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait: Pass) -> None:
    """Copy to the end; the other side is told of it, also where this side broke off."""
    try:
        while data := await reader.read(CHUNK):
            await wait(len(data))
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
