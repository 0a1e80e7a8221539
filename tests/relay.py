"""The links of one host: a process that relays connections, and that a test stops (SIGSTOP) to cut the host off.

    python -m tests.relay unix:LISTEN=unix:TARGET tcp:LISTEN=tcp:TARGET …

A stopped process is what a lost network is: connections neither answer nor end. It prints ``ready``, and ends with its
parent's pipe.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

_CHUNK = 1 << 16


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


async def _connect(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    kind, _, address = target.partition(":")
    if kind == "unix":
        return await asyncio.open_unix_connection(address)
    return await asyncio.open_connection("127.0.0.1", int(address))


async def _listen(source: str, target: str) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await _connect(target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))

    kind, _, address = source.partition(":")
    if kind == "unix":
        await asyncio.start_unix_server(relay, address)
        Path(address).chmod(0o777)
    else:
        await asyncio.start_server(relay, "127.0.0.1", int(address))


async def _main(links: list[str]) -> None:
    for link in links:
        source, _, target = link.partition("=")
        await _listen(source, target)
    print("ready", flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    sys.stdout.flush()
    os._exit(0)  # The connections that are left would each print that they are cancelled.


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
