"""Many small servers that come and go: each has an address of loopback of its own, all one thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self

PAGE = b"""\
vllm:num_requests_running{model_name="m",engine="0"} 0
vllm:num_requests_waiting{model_name="m",engine="0"} 0
vllm:kv_cache_usage_perc{model_name="m",engine="0"} 0
vllm:generation_tokens_total{model_name="m",engine="0"} 5
vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"} 1
"""
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n"


class Fleet:
    """Servers at 127.8.0.1, 127.8.0.2 and so on, all on one port, as pods have it."""

    def __init__(self) -> None:
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._servers: dict[str, asyncio.Server] = {}
        self._peers: dict[str, set[asyncio.StreamWriter]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleet", daemon=True)

    def begin(self, number: int) -> str:
        """Starts a server; returns its address without the port."""
        address = f"127.8.{number // 250}.{number % 250 + 1}"
        self._run(lambda: self._begin(address))
        return address

    def end(self, address: str) -> None:
        """Ends a server: its connections are cut, and new ones refused."""
        self._run(lambda: self._end(address))

    async def _begin(self, address: str) -> None:
        self._peers[address] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._peers[address].add(writer)
            try:
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(_HEAD % len(PAGE) + PAGE)
                    await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                self._peers[address].discard(writer)
                writer.close()

        server = await asyncio.start_server(serve, address, self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._servers[address] = server

    async def _end(self, address: str) -> None:
        self._servers.pop(address).close()
        for peer in list(self._peers[address]):
            peer.transport.abort()

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run_coroutine_threadsafe(work(), self._loop).result(10)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for address in list(self._servers):
            self.end(address)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
