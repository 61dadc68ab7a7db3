"""What differs between asyncio and threads; `_wait` is its twin by hand."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from .answer import Json

Handled: TypeAlias = Awaitable[Json]  # a handler that blocks the loop blocks the renewals, too
Interrupted = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)
Lock = asyncio.Lock
sleep = asyncio.sleep


class Event:
    """A flag to wait for, with a limit in seconds."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        return self._event.is_set()


class Background:
    """Something that runs beside the caller until it is joined."""

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._task = asyncio.create_task(run(), name=name)

    async def join(self) -> None:
        await self._task


@contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop`; a second one cancels the task that waits here."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    asked = False

    def on_signal() -> None:
        nonlocal asked
        if asked and task is not None:
            task.cancel()
        asked = True
        stop()

    caught = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError, RuntimeError, ValueError):  # only in the main thread
            loop.add_signal_handler(number, on_signal)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
