"""One client over one stream of messages: in their order, until it goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from eval.serve.sessions import ClientSession

T = TypeVar("T")
WAITING: Final = 64  # messages that wait for their turn; a client that sends more is not one of ours


async def serve_stream(
    messages: AsyncIterator[T], handle: Callable[[T], Awaitable[None]], session: ClientSession, patience: float = 0.0
) -> None:
    """Handles the messages one after the other. When they end the session is closed, also in the middle of an answer.

    patience  seconds in which the messages that still wait are handled after the end
    """
    queue: asyncio.Queue[T | None] = asyncio.Queue(WAITING)

    async def work() -> None:
        while (message := await queue.get()) is not None:
            await handle(message)

    worker = asyncio.create_task(work())
    try:
        async for message in messages:
            if worker.done() or queue.full():
                break
            queue.put_nowait(message)
        else:
            if patience:
                await asyncio.wait({asyncio.create_task(queue.put(None)), worker}, timeout=patience)
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await session.close()
    error = None if worker.cancelled() else worker.exception()
    if error is not None and not isinstance(error, ConnectionError):  # that: the client is gone before its answer
        raise error
