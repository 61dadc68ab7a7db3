"""What differs between threads and asyncio; `_wait_async` is its twin by hand."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeAlias

from .answer import Json

Handled: TypeAlias = Json
Interrupted = (KeyboardInterrupt, SystemExit)
Lock = threading.Lock
sleep = time.sleep


class Event:
    """A flag to wait for, with a limit in seconds."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)


class Background:
    """Something that runs beside the caller until it is joined."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()


@contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop`; a second one raises KeyboardInterrupt in the main thread."""
    asked = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        del number, frame
        if asked:
            raise KeyboardInterrupt
        asked = True
        stop()

    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(ValueError):  # only in the main thread
            before[number] = signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
