"""Whether figures go to Weights & Biases: online, offline or not at all, and the reason."""

from __future__ import annotations

import configparser
import importlib.util
import netrc
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

WANDB_URL = "https://api.wandb.ai"


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
