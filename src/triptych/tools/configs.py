"""Settings files shipped with the package, found by name.

They lie in `configs/` of the repository, which the wheel carries as `triptych/configs/`. A file of
the domain image is in a folder of that name; its short name leaves the folder out:
`configs/image/digits.yaml` is `digits`, `configs/gpu/image/mnist.yaml` is `gpu/mnist`.
Imports nothing heavy, so that a wrong name is reported at once.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triptych import domains
from triptych.config.files import at_home
from triptych.domains.options import CommandOptions, argument
from triptych.errors import UserError, nearest
from triptych.files.progress import aligned

_PACKAGE = Path(__file__).parents[1]
FOLDER = next(
    (f for f in (_PACKAGE / "configs", _PACKAGE.parents[1] / "configs") if f.is_dir()), None
)
"""Folder of the settings files: of an installation, else of the repository; None without either."""
OPTION = "--config"
WIDTH = 90
"""Characters of the first sentence of a file, at most."""
SUFFIXES = (".yaml", ".yml")


def find_all(domain: str) -> dict[str, Path]:
    """Return the settings files of a domain by short name, complete ones first."""
    if FOLDER is None:
        return {}
    files = sorted(FOLDER.rglob(f"{domain}/*.yaml"), key=lambda file: (len(file.parts), file))
    return {_short(str(f.relative_to(FOLDER).with_suffix("")), domain): f for f in files}


def _short(name: str, *folders: str) -> str:
    return "/".join(part for part in Path(name).parts if part not in folders)


def find(domain: str, name: str) -> Path | None:
    """Return the file of a name, short or with the folder of its domain; None where there is none.

    `digits` and `image/digits` are one file, and so are `gpu/mnist` and `gpu/image/mnist`.
    """
    return find_all(domain).get(_short(name, domain))


def first_sentence(file: Path) -> str:
    """Return the first sentence of the comment that a settings file begins with, at most WIDTH."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            break
        lines.append(line.removeprefix("# ").strip())
    first = re.split(r"(?<!\bal)\. ", " ".join(lines), maxsplit=1)[0]
    return textwrap.shorten(first, WIDTH, placeholder=" ...")


def without_files(domain: str) -> list[str]:
    """Return the short names of complete settings whose source of data reads no file of the user.

    A source that reads files has a setting `directory`.
    """
    import yaml

    names = []
    for name, file in find_all(domain).items():
        source = (yaml.safe_load(file.read_text(encoding="utf-8")).get("data") or {}).get("source")
        if source and "directory" not in (source.get("init_args") or {}):
            names.append(name)
    return names


def with_files(domain: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command with the file of each name that follows `--config`.

    An existing path stays as it is. Raises UserError for a word that is neither a path nor a name.
    """
    replaced: list[str] = []
    for word in arguments:
        if replaced and replaced[-1] == OPTION:
            replaced.append(_file_of(domain, word))
        elif word.startswith(f"{OPTION}="):
            replaced += [OPTION, _file_of(domain, word.partition("=")[2])]
        else:
            replaced.append(word)
    return replaced


def _file_of(domain: str, word: str) -> str:
    """Return the path that a word means; a word that ends like a settings file is always a path."""
    word = at_home(word)
    if word.startswith("-") or Path(word).exists():
        return word
    is_path = word.endswith(SUFFIXES)
    name = word.removesuffix(Path(word).suffix).removeprefix("configs/") if is_path else word
    file = find(domain, name)
    if is_path and file is None:
        return word
    if is_path or file is None:
        raise unknown(name, f" for {domain}")
    return str(file)


def unknown(name: str, where: str = "") -> UserError:
    """Return the refusal of a name, with the nearest file of all domains."""
    known = domains.names()
    files = {short: f"{domain}/{short}" for domain in known for short in find_all(domain)}
    near = nearest(_short(name, *known), files)
    instead = f"did you mean {files[near]}?" if near else "`triptych configs` lists them"
    return UserError(f"there is no settings file or shipped config {name!r}{where}; {instead}")


@dataclass(frozen=True, kw_only=True)
class Configs(CommandOptions):
    """List the settings files shipped with Triptych, those of a domain, or print one.

    To change a copy of one: triptych configs image/digits > my-digits.yaml. `triptych train DOMAIN
    --config NAME` takes the name in place of a file.
    """

    name: str | None = None

    parser_arguments = argument("name", "DOMAIN or DOMAIN/NAME.", nargs="?", metavar="NAME")

    @staticmethod
    def names() -> list[str]:
        """Return the names of the domains and of all settings files."""
        known = domains.names()
        return [*known, *(f"{domain}/{n}" for domain in known for n in find_all(domain))]

    def run(self) -> None:
        known = domains.names()
        if self.name is not None and self.name not in known:
            inside = (domain for domain in known if domain in self.name.split("/"))
            file = next(filter(None, (find(d, self.name) for d in inside)), None)
            if file is None:
                raise unknown(self.name)
            print(file.read_text(encoding="utf-8"), end="")
            return
        for domain in known if self.name is None else [self.name]:
            free = without_files(domain)
            print(f"{domain}: triptych train {domain} --config NAME (* reads no files of yours)")
            rows = [
                (f"{'*' if name in free else ' '} {name}", first_sentence(file))
                for name, file in find_all(domain).items()
            ]
            print(*aligned(rows), sep="\n")
