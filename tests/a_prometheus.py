"""The query API of a Prometheus, as far as it is asked, over samples that a test sets."""

import json
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


class APrometheus:
    """Answers queries from `pages`: of each target's labels the pages of its scrapes by unix time, None for a lost one.

    `targets` are what it shows as present, `queries` those it was asked; `status` other than 200 is an error,
    `warnings` go with each answer, and `ahead_seconds` is by how much its clock is.
    """

    def __init__(self) -> None:
        self.pages: list[tuple[dict[str, str], dict[float, list[str] | None]]] = []
        self.targets: list[dict[str, str]] = []
        self.queries: list[str] = []
        self.status = 200
        self.warnings: list[str] = []
        self.ahead_seconds = 0.0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def now(self) -> float:
        return time.time() + self.ahead_seconds

    def scraped(self, labels: dict[str, str], *ages: float, running: float | None = 1.0) -> None:
        """Adds scrapes of so many seconds ago, in which an engine shows that so many run; None for lost ones."""
        shown = 'vllm:num_requests_running{engine="0",model_name="m"}'
        pages = {
            round(self.now - age, 3): None if running is None else [f"{shown} {running}"] for age in ages
        }
        self.pages.append((labels, pages))
        self.targets.append(labels)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, query: str, at: float) -> dict[str, Any]:
        if query.startswith("group"):
            jobs = {labels.get("job", "") for labels, _ in self.pages}
            return {
                "resultType": "vector",
                "result": [{"metric": {"job": job}, "value": [at, "1"]} for job in jobs],
            }
        if not query.endswith("s]"):
            metrics = [{"__name__": "up"} | labels for labels in self.targets]
            return {
                "resultType": "vector",
                "result": [{"metric": metric, "value": [at, "1"]} for metric in metrics],
            }
        begin = at - float(query.rpartition("[")[2].rstrip("s]"))
        return {"resultType": "matrix", "result": self._rows(begin, at)}

    def _rows(self, begin: float, end: float) -> list[dict[str, Any]]:
        series: dict[str, dict[str, Any]] = {}
        for labels, pages in self.pages:
            for at, page in sorted(pages.items()):
                if not begin < at <= end:
                    continue
                for line in (f"up{{}} {int(page is not None)}", *(page or ())):
                    head, _, value = line.rpartition(" ")
                    name, _, inside = head.partition("{")
                    pairs = [
                        pair.split("=") for pair in inside.rstrip("}").replace('"', "").split(",") if pair
                    ]
                    own = dict(pairs)
                    metric = {"__name__": name, **own, **labels}
                    row = series.setdefault(json.dumps(metric), {"metric": metric, "values": []})
                    row["values"].append([at, value])
        return list(series.values())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        prometheus = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = parse_qs(urlsplit(self.path).query)
                prometheus.queries.append(asked["query"][0])
                told: dict[str, Any] = {"status": "success", "warnings": prometheus.warnings}
                if prometheus.status == 200:
                    told["data"] = prometheus._answer(asked["query"][0], float(asked["time"][0]))
                else:
                    told = {"status": "error", "error": "it is tired"}
                body = json.dumps(told, separators=(",", ":")).encode()
                self.send_response_only(prometheus.status)
                self.send_header("Date", formatdate(prometheus.now, usegmt=True))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
                """Says nothing."""

        return Handler
