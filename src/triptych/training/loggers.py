"""Where figures go: metrics.csv always, Weights & Biases where it can be had, never in the way."""

from __future__ import annotations

import configparser
import csv
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

from triptych.training.media import Media

WANDB_URL = "https://api.wandb.ai"


class CsvMetrics(Logger):
    """One row per report in metrics.csv: its step and the figures, blank where there is none.

    Each row is on disk when `log_metrics` returns. A figure that was not there before adds a
    column; the file is then written anew beside the old one and renamed.

    path: the file. keep_until: rows of later steps are dropped, for a run that is resumed from
    there will write them again; None begins a new file.
    """

    def __init__(self, path: Path, *, keep_until: int | None = None) -> None:
        super().__init__()
        self.path = path
        self.columns = ["step"]
        rows: list[dict[str, str]] = []
        if keep_until is not None and path.is_file():
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                self.columns = list(reader.fieldnames or ["step"])
                for row in reader:
                    # A kill in the middle of a write leaves a short last row: it is dropped.
                    if (row.get("step") or "").isdigit() and None not in row.values():
                        rows.append(row)
            rows = [row for row in rows if int(row["step"]) <= keep_until]
        self._rewrite(rows)

    @property
    def name(self) -> str:
        """Name of the logger."""
        return "csv"

    @property
    def version(self) -> str:
        """Unused: one folder is one run."""
        return ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: config.yaml holds them."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append a row and flush it."""
        new = [name for name in metrics if name not in self.columns]
        if new:
            with self.path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            self.columns += new
            self._rewrite(rows)
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="", lineterminator="\n")
            writer.writerow({"step": step if step is not None else "", **_short(metrics)})

    def _rewrite(self, rows: Sequence[Mapping[str, str]]) -> None:
        unfinished = self.path.with_name(f".{self.path.name}.unfinished")
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        os.replace(unfinished, self.path)


def _short(metrics: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{float(value):.10g}" for name, value in metrics.items()}


@dataclass(frozen=True)
class WandbDecision:
    """What Weights & Biases will do, and the sentence that tells the user."""

    mode: Literal["online", "offline", "off"]
    sentence: str


def find_key(environment: Mapping[str, str], home: Path, here: Path) -> str | None:
    """Return where a Weights & Biases key lies, without reading it out, or None.

    Looked at, as wandb does: the environment, the netrc file, the settings files of the user and of
    the working folder.
    """
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        if environment.get(name):
            return f"the environment variable {name}"
    host = urlsplit(base_url(environment, home, here)).netloc
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


def base_url(environment: Mapping[str, str], home: Path, here: Path) -> str:
    """Return the address of the Weights & Biases server that these settings name."""
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
    """Tell whether the server takes a connection; behind a proxy it is taken on trust."""
    if any(environment.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return True
    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
        with socket.create_connection((parts.hostname or "", port), timeout=seconds):
            return True
    except (OSError, ValueError):  # no connection, or no address at all
        return False


def decide_wandb(
    wanted: str,
    *,
    environment: Mapping[str, str] | None = None,
    home: Path | None = None,
    here: Path | None = None,
    installed: bool | None = None,
    can_reach: Callable[[str], bool] | None = None,
) -> WandbDecision:
    """Choose between online, offline and off before wandb is asked for anything.

    wanted: RunConfig.wandb. A key without a network would make wandb wait for 100 s, so the server
    is tried first. The other arguments are what tests replace.
    """
    env = os.environ if environment is None else environment
    here = Path.cwd() if here is None else here
    if installed is None:
        installed = importlib.util.find_spec("wandb") is not None
    only_csv = "figures are in metrics.csv only"
    if wanted == "off":
        return WandbDecision("off", f"Weights & Biases is off (--run.wandb off); {only_csv}.")
    if not installed:
        return WandbDecision("off", f"Weights & Biases is not installed; {only_csv}.")
    mode = env.get("WANDB_MODE", "").lower()
    disabled = env.get("WANDB_DISABLED", "").lower() in ("true", "1", "yes")
    if disabled or mode == "disabled":
        name = "WANDB_DISABLED" if disabled else "WANDB_MODE"
        return WandbDecision("off", f"Weights & Biases is off ({name} is set); {only_csv}.")
    after = "`wandb sync` can send it later"
    if wanted == "offline":
        return WandbDecision("offline", f"Weights & Biases logs offline as asked; {after}.")
    if mode in ("offline", "dryrun"):
        return WandbDecision(
            "offline", f"Weights & Biases logs offline (WANDB_MODE is {mode}); {after}."
        )
    if home is None:
        try:
            home = Path.home()
        except RuntimeError:  # a user without a home, as in many containers
            home = here
    key = find_key(env, home, here)
    if key is None:
        return WandbDecision(
            "offline", f"Weights & Biases logs offline: no key was found; {after}."
        )
    url = base_url(env, home, here)
    tried = can_reach(url) if can_reach is not None else reachable(url, env)
    if not tried:
        return WandbDecision(
            "offline",
            f"Weights & Biases logs offline: {urlsplit(url).netloc} cannot be reached; {after}.",
        )
    return WandbDecision("online", f"Weights & Biases logs online (key from {key}).")


class WandbMetrics(Logger):
    """A wandb run that gives up with one sentence, rather than the training, when it fails."""

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
        """Identity of the run on the server."""
        return str(self.run.id) if self.run is not None else ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: the configuration was given when the run was opened."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log figures; the step is a figure too, for a resumed run may go back."""
        self._try(lambda run: run.log({**metrics, "step": step}))

    def log_media(self, media: Sequence[Media], step: int) -> None:
        """Log pictures, sounds and tables, and MIDI files as an artifact."""
        self._try(lambda run: _send_media(run, media, step))

    def finalize(self, status: str) -> None:
        """Close the run; failed runs are marked so."""
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
                "the training goes on, figures are in metrics.csv."
            )


def _send_media(run: Any, media: Sequence[Media], step: int) -> None:
    import wandb

    shown: dict[str, Any] = {"step": step}
    notes = []
    for item in media:
        key = f"samples/{item.name}"
        if item.kind == "table":
            # wandb wants one type a column; text and numbers of ours may be mixed.
            rows = [[str(cell) for cell in row] for row in item.rows]
            shown[key] = wandb.Table(columns=list(item.columns), data=rows)
        elif item.kind == "picture":
            # A file, not an array: wandb 0.31 does not rescale floats, so we hand it bytes.
            shown[key] = wandb.Image(str(item.path), caption=item.caption or None)
        elif item.kind == "audio":
            shown[key] = wandb.Audio(str(item.path), caption=item.caption or None)
        else:
            notes.append(item)
    if notes:
        artifact = wandb.Artifact(f"midi-{run.id}", type="midi", metadata={"step": step})
        for item in notes:
            artifact.add_file(str(item.path))
        run.log_artifact(artifact)
    run.log(shown)


def open_wandb(
    decision: WandbDecision,
    tell: Callable[[str], None],
    *,
    folder: Path,
    project: str,
    name: str,
    identity: str,
    config: dict[str, Any],
) -> WandbMetrics | None:
    """Open the run as decided; where online fails try offline, where that fails go without.

    Says one sentence about what is done. folder: the run's, wandb writes below it. identity: kept
    in versions.json, so that a resumed run goes on in the same one.
    """
    if decision.mode == "off":
        tell(decision.sentence)
        return None
    failure = ""
    for mode in ("online", "offline") if decision.mode == "online" else ("offline",):
        try:
            import wandb

            run = wandb.init(
                project=project,
                name=name,
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
    tell(f"Weights & Biases is off: it failed ({failure}); figures are in metrics.csv only.")
    return None
