"""Format `safetensors`: the model as Triptych opens it again, without pickle."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch
from torch import nn

from triptych import pretrained
from triptych.errors import UserError
from triptych.files.results import json_bytes
from triptych.tools.export.card import command
from triptych.tools.export.source import Source, Written, check_read_back
from triptych.tools.export.tokenizer import tokenizer_files
from triptych.training.run.model_files import to_safetensors

USE = """\
{command}

```python
import triptych

model = triptych.load("{folder}")
```

Without Triptych: `safetensors.torch.load_file("model.safetensors")` gives the tensors by name, and
`config.json` has the settings, the vocabulary and the hash of the weights."""


def write(source: Source, folder: Path) -> Written:
    """Write model.safetensors, config.json and, for text, tokenizer.json."""
    module = nn.ModuleDict({"model": source.model.full_model})  # names begin with "model."
    weights, tied = to_safetensors(module, torch.float32)
    config = source.metadata(weights, tied=tied)
    state = module.state_dict()
    check_read_back(weights, config, state)
    (folder / pretrained.FOLDER_WEIGHTS).write_bytes(weights)
    (folder / pretrained.FOLDER_METADATA).write_bytes(json_bytes(config))
    with suppress(UserError):  # a tokenizer that config.json alone can hold
        for name, text in tokenizer_files(source.model).items():
            (folder / name).write_bytes(text)
    return Written(
        weights=f"{len(weights) / 1e6:.1f} MB in float32",
        use=USE.format(command=command(source.domain, "FOLDER"), folder="FOLDER"),
        checks=[f"All {len(state)} tensors were read back and are equal to those of the model."],
    )
