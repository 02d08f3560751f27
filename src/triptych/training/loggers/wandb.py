"""Metrics and samples in Weights & Biases: online, offline or off, never an error of the run."""

from __future__ import annotations

import configparser
import importlib.util
import netrc
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pytorch_lightning.loggers.logger import Logger

from triptych.training.callbacks.progress import say
from triptych.training.loggers.media import Media
from triptych.training.run_config import RunConfig

WANDB_URL = "https://api.wandb.ai"


class WandbMetrics(Logger):
    """Run of Weights & Biases that is closed with one sentence after its first error.

    With Lightning's WandbLogger an error of wandb ends the training.
    """

    def __init__(self, run: Any, tell: Callable[[str], None]) -> None:
        super().__init__()
        self.run: Any | None = run
        self._tell = tell

    @property
    def name(self) -> str:
        """Name of the logger."""
        return "wandb"

    @property
    def version(self) -> str:
        """Id of the run."""
        return str(self.run.id) if self.run is not None else ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing: `open_wandb` gives the settings."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log metrics; the step is a metric too, since a resumed run may go back."""
        self._try(lambda run: run.log({**metrics, "step": step}))

    def log_media(self, media: Sequence[Media], step: int) -> None:
        """Log images, sounds and tables, and MIDI files as an artifact."""
        self._try(lambda run: _send_media(run, media, step))

    def finalize(self, status: str) -> None:
        """Close the run; a status other than success marks it as failed."""
        self._try(lambda run: run.finish(exit_code=0 if status == "success" else 1))
        self.run = None

    def _try(self, action: Callable[[Any], object]) -> None:
        if self.run is None:
            return
        try:
            action(self.run)
        except Exception as error:
            self.run = None
            self._tell(
                f"Weights & Biases failed ({type(error).__name__}: {error}) and is off from here; "
                "the training goes on, metrics are in metrics.csv."
            )


def _send_media(run: Any, media: Sequence[Media], step: int) -> None:
    import wandb

    shown: dict[str, Any] = {"step": step}
    midi = [item for item in media if item.kind == "midi"]
    for item in media:
        key = f"samples/{item.name}"
        if item.kind == "table":
            # wandb requires one type per column.
            rows = [[str(cell) for cell in row] for row in item.rows]
            shown[key] = wandb.Table(columns=list(item.columns), data=rows)
        elif item.kind == "image":
            # A file rather than an array, since wandb does not rescale floats.
            shown[key] = wandb.Image(str(item.path), caption=item.caption or None)
        elif item.kind == "audio":
            shown[key] = wandb.Audio(str(item.path), caption=item.caption or None)
    if midi:
        artifact = wandb.Artifact(f"midi-{run.id}", type="midi", metadata={"step": step})
        for item in midi:
            artifact.add_file(str(item.path))
        run.log_artifact(artifact)
    run.log(shown)


def open_wandb(
    settings: RunConfig,
    *,
    folder: Path,
    identity: str,
    config: dict[str, Any],
    tell: Callable[[str], None] = say,
    decision: WandbDecision | None = None,
) -> WandbMetrics | None:
    """Open the run online, else offline, else return None; print one sentence about it.

    folder: of the run; wandb writes into a sub-folder. identity: id of the wandb run, kept for
    resumed runs. config: settings and versions. decision: replaces `decide_wandb`, for tests.
    """
    decision = decide_wandb(settings.wandb) if decision is None else decision
    if decision.mode == "off":
        tell(decision.sentence)
        return None
    failure = ""
    for mode in ("online", "offline") if decision.mode == "online" else ("offline",):
        try:
            import wandb

            run = wandb.init(
                project=settings.wandb_project,
                name=settings.name,
                id=identity,
                dir=str(folder),
                config=config,
                mode=mode,
                resume="allow",
                settings=wandb.Settings(console="off", silent=True, init_timeout=30.0),
            )
            run.define_metric("step", hidden=True)
            run.define_metric("*", step_metric="step")
        except Exception as error:
            failure = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        if failure:
            tell(f"Weights & Biases logs offline: online failed ({failure}).")
        else:
            tell(decision.sentence)
        return WandbMetrics(run, tell)
    tell(f"Weights & Biases is off: it failed ({failure}); metrics are in metrics.csv only.")
    return None


@dataclass(frozen=True)
class WandbDecision:
    """Mode of Weights & Biases, and a sentence with the reason."""

    mode: Literal["online", "offline", "off"]
    sentence: str


def decide_wandb(
    wanted: str,
    *,
    environment: Mapping[str, str] | None = None,
    home: Path | None = None,
    here: Path | None = None,
    installed: bool | None = None,
    can_reach: Callable[[str], bool] | None = None,
) -> WandbDecision:
    """Choose the mode before wandb is imported: wandb waits long for an unreachable server.

    wanted: RunConfig.wandb. The other arguments replace the process's environment, for tests.
    """
    env = os.environ if environment is None else environment
    here = Path.cwd() if here is None else here
    if installed is None:
        installed = importlib.util.find_spec("wandb") is not None
    only_csv = "metrics are in metrics.csv only"
    if wanted == "off":
        return WandbDecision("off", f"Weights & Biases is off (--run.wandb off); {only_csv}.")
    if not installed:
        return WandbDecision("off", f"Weights & Biases is not installed; {only_csv}.")
    mode = env.get("WANDB_MODE", "").lower()
    disabled = env.get("WANDB_DISABLED", "").lower() in ("true", "1", "yes")
    if disabled or mode == "disabled":
        name = "WANDB_DISABLED" if disabled else "WANDB_MODE"
        return WandbDecision("off", f"Weights & Biases is off ({name} is set); {only_csv}.")

    def offline(reason: str) -> WandbDecision:
        sentence = f"Weights & Biases logs offline{reason}; `wandb sync` can send it later."
        return WandbDecision("offline", sentence)

    if wanted == "offline":
        return offline(" as asked")
    if mode in ("offline", "dryrun"):
        return offline(f" (WANDB_MODE is {mode})")
    if home is None:
        try:
            home = Path.home()
        except RuntimeError:  # a user without a home folder, as in many containers
            home = here
    key = find_key(env, home, here)
    if key is None:
        return offline(": no key was found")
    url = _base_url(env, home, here)
    if not (can_reach(url) if can_reach is not None else reachable(url, env)):
        return offline(f": {urlsplit(url).netloc} cannot be reached")
    return WandbDecision("online", f"Weights & Biases logs online (key from {key}).")


def find_key(environment: Mapping[str, str], home: Path, here: Path) -> str | None:
    """Return where wandb would find a key, without reading the key, or None.

    Searched are the environment, the netrc file, and the settings files of the user and of the
    working folder. `wandb.login` would ask the server or the user.
    """
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        if environment.get(name):
            return f"the environment variable {name}"
    host = urlsplit(_base_url(environment, home, here)).netloc
    files = [Path(environment["NETRC"])] if environment.get("NETRC") else []
    for path in [*files, home / ".netrc", home / "_netrc"]:
        try:
            entry = netrc.netrc(str(path)).authenticators(host)
        except (OSError, netrc.NetrcParseError):
            continue
        if entry is not None and entry[2]:
            return str(path)
    for path in _settings_files(environment, home, here):
        if _setting(path, "api_key"):
            return str(path)
    return None


def _base_url(environment: Mapping[str, str], home: Path, here: Path) -> str:
    if environment.get("WANDB_BASE_URL"):
        return environment["WANDB_BASE_URL"]
    for path in _settings_files(environment, home, here):
        if found := _setting(path, "base_url"):
            return found
    return WANDB_URL


def _settings_files(environment: Mapping[str, str], home: Path, here: Path) -> list[Path]:
    own = Path(environment.get("WANDB_CONFIG_DIR") or home / ".config" / "wandb")
    return [here / "wandb" / "settings", own / "settings"]


def _setting(path: Path, name: str) -> str | None:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
        return parser.get("default", name, fallback=None)
    except (configparser.Error, OSError, UnicodeDecodeError):
        return None


def reachable(url: str, environment: Mapping[str, str], *, seconds: float = 3.0) -> bool:
    """Return whether the server accepts a connection; True behind a proxy, without a test."""
    if any(environment.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return True
    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
        with socket.create_connection((parts.hostname or "", port), timeout=seconds):
            return True
    except (OSError, ValueError):  # no connection, or no valid address
        return False
