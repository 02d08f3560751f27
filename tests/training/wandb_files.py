"""What wandb's local files of an offline run contain."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def leveldb_records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a LevelDB log, the format of wandb's local file, after its 7 bytes.

    A block of 32 KiB has fragments with a header (checksum, length, type); types 1 and 4 end a
    record, and fewer than 7 bytes at the end of a block are padding.
    """
    block, at, record = 32 * 1024, 7, b""
    while at + 7 <= len(content):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def records_of(file: Path) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    for data in leveldb_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        yield record


def wandb_records(folder: Path) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the rows of history and the artifacts of an offline run."""
    import wandb

    wandb.teardown()  # the service may still be writing
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    rows, artifacts = [], []
    for record in records_of(file):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            row: dict[str, Any] = {}
            for item in record.history.item:
                name, *inner = item.nested_key or [item.key]
                value = json.loads(item.value_json)
                if inner:  # a description of a file, key by key
                    row.setdefault(name, {})[inner[0]] = value
                else:
                    row[name] = value
            rows.append(row)
        elif kind == "request" and record.request.HasField("log_artifact"):
            artifacts.append(record.request.log_artifact.artifact)
        elif kind == "artifact":
            artifacts.append(record.artifact)
    return rows, artifacts
