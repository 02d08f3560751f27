"""Filling of a commented settings file: new values in the text, with its comments kept."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from triptych.tools.new_run.data import Setting


def fill(text: str, settings: Mapping[str, Setting], header: list[str]) -> str:
    """Return the text of a settings file with other values and another comment at its beginning.

    settings: by dotted key as on the command line, without `init_args`; a comment at the end of the
    line gives way to the reason. A mapping replaces all of a mapping, with the comment at its end.
    header: lines of the new comment, without `# `. Raises KeyError for a key that the text does not
    set.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    nodes: dict[str, yaml.Node] = {}
    for key, node in _values(root):
        nodes.setdefault(key, node)  # a part before its arguments
    spans = [(*_span(nodes[key]), setting) for key, setting in settings.items()]
    for start, end, setting in sorted(spans, key=lambda span: span[0], reverse=True):
        indent = " " * (start - text.rfind("\n", 0, start) - 1)
        rest = text.find("\n", end)
        if isinstance(setting.value, dict):
            why = f"# {setting.why}\n{indent}" if setting.why else ""
            block = yaml.safe_dump(setting.value, sort_keys=False, allow_unicode=True).rstrip()
            new = why + block.replace("\n", f"\n{indent}")
        else:
            why = f"  # {setting.why}" if setting.why else text[end:rest]
            new = _flow(setting.value) + why
        text = text[:start] + new + text[rest:]
    body = text.splitlines(keepends=True)
    while body and (body[0].startswith("#") or not body[0].strip()):
        del body[0]
    comment = "".join(f"# {_printable(line)}".rstrip() + "\n" for line in header)
    return f"{comment}\n{''.join(body)}"


def _printable(line: str) -> str:
    """Return a line with a question mark for each character that is not printable."""
    return "".join(character if character.isprintable() else "?" for character in line)


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    listed = yaml.safe_dump([value], default_flow_style=True, width=10**6, allow_unicode=True)
    return listed.strip().removeprefix("[").removesuffix("]")


def _values(node: yaml.Node, key: str = "") -> Iterator[tuple[str, yaml.Node]]:
    """Yield dotted keys with their nodes; `init_args` stands for nothing in a key."""
    yield key, node
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            inner = key if name.value == "init_args" else f"{key}.{name.value}".lstrip(".")
            yield from _values(value, inner)


def _span(node: yaml.Node) -> tuple[int, int]:
    """Return the first character of a value and the one after its last.

    The end of a block in YAML's sense lies behind the comments and blank lines that follow it.
    """
    last = node
    while isinstance(last, yaml.CollectionNode) and last.value and not last.flow_style:
        last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
    return node.start_mark.index, last.end_mark.index
