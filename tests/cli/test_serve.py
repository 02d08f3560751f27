"""`triptych serve` as a process: refusals, its end, and a folder of CTranslate2 without torch."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
import tiny_models
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import triptych
from triptych import pretrained
from triptych.domains.options import short_names
from triptych.tools.export import ctranslate2
from triptych.tools.export.original import open_original
from triptych.tools.serve.translation import open_export

pytest.importorskip("fastapi", reason="FastAPI is not installed (extra serve)")
START = "import sys\n{first}from triptych.cli.main import main\nsys.exit(main(sys.argv[1:]))"


@contextmanager
def served(*words: object, first: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process of a server and its address. first: code that runs before the imports."""
    command = [sys.executable, "-c", START.format(first=first), "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--checkpoint", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), process.communicate()[1]
        yield process, line.split()[0]
    finally:
        process.kill()
        process.communicate()


def ask(address: str, path: str, body: Any = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    with urlopen(Request(address + path, content, headers), timeout=60) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], ["checkpoint"]),
        (["--checkpoint", "nowhere.ckpt"], ["nowhere.ckpt"]),
        (["--checkpoint", "pretrained:mnist", "pretrained:minst"], ["did you mean mnist?"]),
        (["--checkpoint", "pretrained:mnist", "--device", "tpu"], ["tpu"]),
        (["--checkpoint", "pretrained:mnist", "--dtype", "fp8"], ["fp8"]),
        (["--checkpoint", "pretrained:mnist", "--port", "70000"], ["--port must be at most 65535"]),
        (["--checkpoint", "pretrained:mnist", "--max_queue", "0"], ["max_queue"]),
        (["--checkpoint", "pretrained:mnist", "--host", "no host"], ["of no host cannot be used"]),
    ],
    ids=str,
)
def test_mistakes_are_refused(refused, words: list[str], says: list[str]) -> None:
    refused("serve", *words, says=says)


def test_without_fastapi_it_says_what_to_install(refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    refused("serve", "--checkpoint", "pretrained:mnist", says=["pip install 'triptych[serve]'"])


def test_without_torch_it_says_what_needs_it(refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    refused("serve", "--checkpoint", "pretrained:mnist", says=["no folder of CTranslate2, needs"])


def test_a_port_in_use_is_refused_before_a_model_is_opened(refused) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        words = ["--checkpoint", "pretrained:mnist", "--port", port]
        refused("serve", *words, says=[f"port {port} of 127.0.0.1 cannot be used"])


def test_a_model_that_nothing_serves_and_a_foreign_folder(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str, device: str) -> Any:
        return {
            "gan.ckpt": tiny_models.gan_model(),
            "larger.ckpt": tiny_models.image_model(super_resolution={"factor": 2}),
        }[name].model

    monkeypatch.setattr(triptych, "load", load)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/model.bin").touch()
    for name in ("gan.ckpt", "larger.ckpt"):
        (tmp_path / name).touch()
    for name, says in (
        ("gan.ckpt", "of the domain gan, which is not served; expected a model of image, language"),
        ("larger.ckpt", "serving"),
        ("foreign", "foreign is damaged or was not written by this version"),
    ):
        answer = cli("serve", "--port", "0", "--checkpoint", name)
        assert (answer.code, answer.out) == (2, "")
        assert says in answer.err


def test_models_are_called_by_the_shortest_name_that_differs() -> None:
    names = ["runs/a/checkpoints/best.ckpt", "pretrained:mnist", "x/b.ckpt", "y/b.ckpt"]
    assert list(short_names(names).values()) == ["a", "mnist", "x/b.ckpt", "y/b.ckpt"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_finish(signum: int, image_checkpoint: Path) -> None:
    with served(image_checkpoint, "--max_count", 5000) as (process, address):
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(ask, address, "/sample", {"count": 4000})
            for _ in range(600):
                with urlopen(f"{address}/metrics") as answer:
                    if b'triptych_batch_size_count{model="run"} 1' in answer.read():
                        break
                time.sleep(0.02)
            assert not running.done(), "the work is over before the signal"
            process.send_signal(signum)
            assert len(running.result()["samples"]) == 4000
        assert process.wait(30) == 0
        with pytest.raises(URLError):
            ask(address, "/health")


@pytest.mark.slow
def test_work_longer_than_the_grace_is_left(image_checkpoint: Path) -> None:
    words = [image_checkpoint, "--max_count", 10**6, "--grace", 0.2]
    with served(*words) as (process, address), ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, address, "/sample", {"count": 200_000})
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        refused: Any = running.exception()
        assert (refused.code, json.loads(refused.read())) == (503, {"error": "the server ends"})
    assert "Traceback" not in process.communicate()[1]


def installed_in_the_image() -> set[str]:
    """Distributions that the target `serve` of the Dockerfile installs."""
    text = (Path(__file__).parents[2] / "scripts/docker/Dockerfile").read_text()
    with_needs, alone = re.findall(r"--target /app.*\\\n +(.+?) (?:\\|/wheels)", text)
    found, ask_for = (
        set(alone.split()),
        [Requirement(word.strip('"')) for word in with_needs.split()],
    )
    while ask_for:
        asked = ask_for.pop()
        found.add(canonicalize_name(asked.name))
        for line in requires(asked.name) or []:
            needed = Requirement(line)
            extras = [{"extra": extra} for extra in ("", *asked.extras)]
            wanted = needed.marker is None or any(map(needed.marker.evaluate, extras))
            if wanted and canonicalize_name(needed.name) not in found:
                ask_for.append(needed)
    return found


def test_a_folder_of_ctranslate2_is_served_by_what_the_image_installs(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (extra export)")
    name = "pretrained:multi30k-en-de"
    original = open_original(name, pretrained.find(name), {})
    folder = tmp_path / "small"
    folder.mkdir()
    ctranslate2.write(original, folder)
    lines = [
        "A man plays the guitar.", "", " \t", "TWO DOGS RUN ON THE GRASS.", "A dog </s> runs.",
        "A “small” girl\u00a0eats ﬁsh.", "A man plays the guitar. A dog runs on grass. " * 20,
    ]  # fmt: skip
    expected: Any = original.model.translate(lines, beam=1, length_penalty="average")
    steps: list[tuple[int, int]] = []
    open_export(str(folder), "cpu", "fp32").translate(
        lines[:1] * 5, beam=1, n_best=1, batch_size=2, progress=lambda *step: steps.append(step)
    )
    assert steps == [(0, 5), (2, 5), (4, 5)]
    image = installed_in_the_image() | {"triptych"}
    absent = [
        module
        for module, owners in packages_distributions().items()
        if not image & set(map(canonicalize_name, owners))
    ]
    assert {"torch", "huggingface_hub", "PIL", "matplotlib"} <= set(absent)
    first = f"sys.modules.update(dict.fromkeys({absent}))\n"
    with served(folder, "--beam", 1, first=first) as (_, address):
        found = ask(address, "/translate", {"q": lines, "source": "en", "target": "de"})
        assert ask(address, "/models")[0]["name"] == "small"
    assert found == {"translatedText": expected}
