"""Figures of a server in Prometheus's text format."""

from collections import Counter
from threading import Lock

REQUESTS, SECONDS = "triptych_requests_total", "triptych_request_seconds"
BATCH, QUEUE = "triptych_batch_size", "triptych_queue_length"
KINDS = {
    REQUESTS: "counter", SECONDS: "histogram", BATCH: "histogram", QUEUE: "gauge",
}  # fmt: skip
BUCKETS = {
    SECONDS: (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, float("inf")),
    BATCH: (1, 2, 4, 8, 16, 32, 64, 128, float("inf")),
}
"""Upper ends of the buckets: seconds until an answer; lines or samples computed together."""


class Metrics:
    """Counters, histograms and gauges; any thread may change them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: dict[str, Counter[str]] = {name: Counter() for name in KINDS}

    def add(self, name: str, by: float = 1, part: str = "", **labels: str) -> None:
        """Add to the value with some labels; part: of a histogram, the end of its name."""
        escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
        shown = ",".join(f'{key}="{text.translate(escapes)}"' for key, text in labels.items())
        with self._lock:
            self._values[name][f"{name}{part}{{{shown}}}"] += by  # type: ignore[assignment]

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add a value to a histogram."""
        for most in BUCKETS[name]:
            le = f"{most:g}".replace("inf", "+Inf")
            self.add(name, value <= most, "_bucket", **labels, le=le)
        self.add(name, value, "_sum", **labels)
        self.add(name, 1, "_count", **labels)

    def text(self, waiting: dict[str, int]) -> str:
        """Return all values; waiting: length of the queue of each model."""
        self._values[QUEUE].clear()
        for model, length in waiting.items():
            self.add(QUEUE, length, model=model)
        lines = []
        with self._lock:
            for name, kind in KINDS.items():
                lines.append(f"# TYPE {name} {kind}")
                lines += [f"{key} {value:.10g}" for key, value in self._values[name].items()]
        return "\n".join([*lines, ""])
