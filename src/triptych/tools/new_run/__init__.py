"""First settings for a user's data: a commented YAML file (`triptych new-run`)."""

import sys
from importlib import import_module
from pathlib import Path

import yaml

from triptych.domains.base import Domain
from triptych.domains.options import NewRunOptions
from triptych.errors import UserError
from triptych.files.results import check_result_file, write_atomically
from triptych.tools import configs


def run(domain: Domain, options: NewRunOptions) -> None:
    """Write the settings file and print what was found; raises UserError for bad input."""
    out = check_result_file(options.out, "out", replaces=options.overwrite)

    from triptych.config.schema import from_plain
    from triptych.tools.new_run.data import Setting
    from triptych.tools.new_run.suggest import fill, header_lines, said_in_preparing, suggested

    assert domain.description is not None
    module = import_module(domain.description)
    data = module.describe(options)
    template = configs.find(domain.name, data.template)
    if template is None:
        raise UserError(f"the config {data.template} does not come with this installation")
    name = f"{domain.name}/{out.stem}"
    sizes = Path(str(module.__file__)).with_suffix(".yaml")
    settings = suggested(data, sizes) | {"run.name": Setting(name)}
    text = template.read_text(encoding="utf-8")
    for line in (*data.facts, *data.advice):
        print(line, file=sys.stderr)
    content = yaml.safe_load(fill(text, settings, []))
    del content["trainer"]
    said = said_in_preparing(domain, from_plain(domain.config_class(), content))
    header = header_lines(domain, data, options, name, said)
    write_atomically(out, fill(text, settings, header).encode())
    print(f"{out} is ready: triptych train {domain.name} --config {out}", file=sys.stderr)
