"""The site's page of the command line: every command, domain and option, read from the parsers.

Lightning's own Trainer arguments are left out, as they change with its version.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from pkgutil import resolve_name
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

REQUIRED = object()
SHARED = ("optim", "run")
"""Groups of settings that are the same in every domain."""
HEAD = """\
# Command line

```text
{help}```

A *part* is a setting with several kinds. It is given by the class path of a kind, and the settings
of the kind follow as `--setting.init_args.name value`, or in YAML:

```yaml
attention:
  class_path: triptych.core.attention.relative.Relative
  init_args: {{window: 512}}
```

The short class name is enough where it is unique: `--model.transformer.attention Relative`.
"""
TRAINER = """\
### trainer, in every domain

The arguments of [Lightning's Trainer](https://lightning.ai/docs/pytorch/stable/common/trainer.html),\
 such as `--trainer.max_steps 500`, but those that the run sets itself. Callbacks and loggers are\
 named by class: `--trainer.callbacks+=LearningRateMonitor`,\
 `--trainer.logger TensorBoardLogger --trainer.logger.save_dir runs`.\
 `--trainer.profiler simple` writes fit-profile.txt into the run's folder.\
 `triptych train DOMAIN --help` lists them.
"""


def document() -> str:
    """The whole page."""
    from triptych.cli.main import COMMANDS, help_text
    from triptych.cli.options import parser_of

    lines = [HEAD.format(help=help_text())]
    for command in COMMANDS.values():
        if command.name == "train":
            lines += training(command)
        elif command.has_settings:
            lines += besides_settings(command)
        elif command.needs_domain:
            lines += in_domains(command)
        else:
            lines += alone(parser_of(command.name))
    return "\n".join(lines)


def training(command: Any) -> list[str]:
    """`triptych train`: the domains without what they share, then what all domains share."""
    from triptych import domains
    from triptych.cli.options import parser_of

    lines = ["## triptych train\n"]
    shared: dict[type, None] = {}  # parts of several domains, in order
    for name in command.domains():
        domain = domains.find_domain(name)
        parser = parser_of("train", domain)
        rows = [row for row in options(parser) if row[0].partition(".")[0] not in SHARED]
        lines += [f"### triptych train {name}\n\n{parser.description}\n", table(rows)]
        own, others = parts_in(domain.config_class())
        lines += map(kinds, own)
        shared |= dict.fromkeys(others)
    lines += ["### Parts of several domains\n", *map(kinds, shared)]
    return lines + shared_settings(parser)


def shared_settings(parser: Any) -> list[str]:
    """The settings of training that all domains share, read from the parser of one of them."""
    lines = []
    for group in SHARED:
        rows = (row for row in options(parser) if row[0].startswith(f"{group}."))
        lines += [f"### {group}, in every domain\n", table(rows)]
    return [*lines, TRAINER]


def besides_settings(command: Any) -> list[str]:
    """A command with the settings of `triptych train`: its own options, read from one domain."""
    from triptych import domains
    from triptych.cli.options import parser_of

    domain = domains.find_domain(command.domains()[0])
    settings = {row[0] for row in options(parser_of("train", domain))}
    rows = (row for row in options(parser_of(command.name, domain)) if row[0] not in settings)
    heading = f"## triptych {command.name}\n\n{sentence(command.help)}"
    return [f"{heading} Besides the settings of `triptych train`:\n", table(rows)]


def in_domains(command: Any) -> list[str]:
    """A command in the domains that offer it."""
    from triptych import domains
    from triptych.cli.options import parser_of

    lines = [f"## triptych {command.name}\n"]
    offering = command.domains()
    for name in offering:
        parser = parser_of(command.name, domains.find_domain(name))
        heading = f"### triptych {command.name} {name}\n\n" if len(offering) > 1 else ""
        lines += [f"{heading}{parser.description}\n", table(options(parser))]
    return lines


def alone(parser: Any) -> list[str]:
    """A command without a domain."""
    lines = [f"## {parser.prog}\n\n`{parser.usage}`\n\n{parser.description}\n"]
    rows = options(parser)
    if parser.prog == "triptych explain":
        from triptych.tools.explain.figure import descriptions

        lines += [*(f"- `{name}`: {text}" for name, text in descriptions().items()), ""]
    return [*lines, table(rows)] if rows else lines


def sentence(text: str) -> str:
    """A text as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def options(parser: Any) -> list[tuple[str, Any, Any, str]]:
    """Name, type, default and text of every option, in the parser's order."""
    defaults = getattr(parser, "get_defaults", dict)()  # argparse has none
    rows = []
    for action in parser._actions:
        name = action.option_strings[-1].removeprefix("--") if action.option_strings else ""
        hidden = action.help == argparse.SUPPRESS or name.startswith(("trainer", "print_"))
        if not name or name == "help" or name.endswith(".help") or hidden:
            continue
        default = REQUIRED if action.required else defaults.get(action.dest, action.default)
        hint = getattr(action, "_typehint", getattr(action, "type", None))
        rows.append((name, hint, None if action.nargs == 0 else default, action.help))
    return rows


def table(rows: Any, *, prefix: str = "--") -> str:
    """A Markdown table of options."""
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for name, hint, default, text in rows:
        cells = [f"`{prefix}{name}`", type_words(hint), shown(default), " ".join(text.split())]
        escaped = (cell.replace("|", "\\|").replace("%%", "%") for cell in cells)
        lines.append("| " + " | ".join(escaped) + " |")
    return "\n".join(lines) + "\n"


def type_words(hint: Any) -> str:
    """The type of an option in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is None:
        return ""
    if hint is type(None):
        return "null"
    if origin in (Union, UnionType):
        return " or ".join(map(type_words, arguments))
    if origin is Literal:
        return ", ".join(f"`{word}`" for word in arguments)
    if origin in (list, tuple):
        return f"list of {type_words(arguments[0])}" if arguments else "list"
    if dict in (hint, origin):
        return "mapping"
    if origin is Annotated:
        return f"{arguments[0].__name__} {arguments[1]}"
    names = {int: "int", float: "float", bool: "true or false", str: "text"}
    return names.get(hint) or f"part: {hint.__name__}"


def shown(default: Any) -> str:
    """The default of an option in a table."""
    if default is REQUIRED:
        return "required"
    if default is argparse.SUPPRESS or default is None:
        return ""
    if hasattr(default, "class_path") or dataclasses.is_dataclass(default):
        return f"`{getattr(default, 'class_path', type(default).__name__).rpartition('.')[2]}`"
    text = str(default)
    return f"`{ {'True': 'true', 'False': 'false'}.get(text, text) }`"


def parts_in(cls: type, within: tuple[type, ...] = ()) -> tuple[list[type], list[type]]:
    """The parts of a settings class, of its groups and of the parts' kinds: own and shared.

    within: the classes that hold this one; a part may hold its own kind again.
    """
    from triptych import domains
    from triptych.config.messages import class_in, is_part, subclass_paths

    own: list[type] = []
    shared: list[type] = []
    for hint in get_type_hints(cls).values():
        inner = class_in(hint)
        if inner is not None and is_part(inner):
            is_own = inner.__module__.split(".")[2] in domains.names()
            (own if is_own else shared).append(inner)
            groups = [resolve_name(path) for path in subclass_paths(inner)]
        else:
            groups = [inner] if dataclasses.is_dataclass(inner) else []
        for group in groups:
            if group in within:
                continue
            more = parts_in(group, (*within, cls))
            own += more[0]
            shared += more[1]
    return list(dict.fromkeys(own)), list(dict.fromkeys(shared))


def kinds(part: type) -> str:
    """Every kind of a part with its settings."""
    from triptych.config.messages import subclass_paths
    from triptych.config.schema import parser_for

    lines = [f"#### Kinds of {part.__name__}\n"]
    for path in subclass_paths(part):
        if not path.startswith("triptych."):
            continue  # a kind that somebody's plugin declares
        cls = resolve_name(path)
        first = inspect.getdoc(cls).splitlines()[0]
        lines.append(f"`{path}`: {first}\n")
        rows = options(parser_for(cls, prog="", description="", config=False))
        if rows:
            lines.append(table(rows, prefix=""))
    return "\n".join(lines)
