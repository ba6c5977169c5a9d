"""`python -m tests.bench.load_server PORT SHARE`: plays vLLM servers, a share of them with a full KV cache.

`/t/N/metrics` is server N's page. `/counts` says how often each was read.
"""

import asyncio
import json
import re
import sys
import time
from collections import Counter

from tests.bench.endless import Endless

HEALTHY = "h200-healthy"
FULL = "h200-kv-pool-exhausted"
VERSION = json.dumps({"version": "0.24.0"}).encode()
MODELS = json.dumps({"data": [{"id": "m", "max_model_len": 8192}]}).encode()


class Servers:
    """All of them: their pages, made once a second, and how often they were read."""

    def __init__(self, firing_share: float) -> None:
        self._firing_share = firing_share
        self._pages = {False: Endless(HEALTHY), True: Endless(FULL, FULL.removeprefix("h200-"))}
        self._made: dict[bool, tuple[int, bytes]] = {}
        self._began = time.monotonic()
        self.counts: Counter[int] = Counter()

    def answer(self, path: str) -> bytes | None:
        """What a path gives; None where there is nothing."""
        if path == "/counts":
            return json.dumps(self.counts).encode()
        if (found := re.fullmatch(r"/t/(\d+)/(metrics|version|v1/models)", path)) is None:
            return None
        if found[2] != "metrics":
            return VERSION if found[2] == "version" else MODELS
        number = int(found[1])
        self.counts[number] += 1
        return self._page(number * 2_654_435_761 % 1000 < 1000 * self._firing_share)

    def _page(self, is_full: bool) -> bytes:
        second = int(time.monotonic() - self._began)
        made = self._made.get(is_full)
        if made is None or made[0] != second:
            made = self._made[is_full] = (second, self._pages[is_full].page(second))
        return made[1]


class Connection(asyncio.Protocol):
    """One connection that is kept."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            body = self._servers.answer(head.split(b" ", 2)[1].decode())
            status = b"404 Not Found" if body is None else b"200 OK"
            answer = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body or b""))
            self._transport.write(answer + (body or b""))  # type: ignore[attr-defined]


async def serve(port: int, firing_share: float) -> None:
    """Answers until it is ended."""
    servers = Servers(firing_share)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(servers), "127.0.0.1", port, backlog=2048)
    print(f"port {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
