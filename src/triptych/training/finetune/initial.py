"""What a run starts with: its checkpoint, the weights of a trained model, or word vectors."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from triptych.config.schema import to_plain
from triptych.errors import UserError
from triptych.training.callbacks.progress import say
from triptych.training.engine.module import TrainingModule
from triptych.training.finetune.parts import check_parts, is_adapter
from triptych.training.finetune.rows import RowMap, place_vectors, with_rows
from triptych.training.run.checkpoint import (
    check_domain,
    core_weights,
    merged_weights,
    read_checkpoint,
)
from triptych.training.run.resume import changes, check_resumable, find_checkpoint, listed, misfit
from triptych.training.run.settings import RunSettings

OPTION = "run.start.init_from"
"""Setting that names the checkpoint."""

SIZES = ("n_layers", "d_model", "n_heads", "d_ff")
"""Last parts of the names of settings that determine a model's sizes."""


class Start(NamedTuple):
    """What a run starts with, as far as it is known before its data are read."""

    config: RunSettings
    """Settings of the run; a resumed one keeps the initial weights of its beginning."""
    vocabulary: Any = None
    """Vocabulary that comes with the weights; None where the run builds its own."""
    initial: dict[str, Any] | None = None
    """Content of the checkpoint `run.start.init_from` of a new run, with merged adapters."""
    resumed: tuple[Path, dict[str, Any]] | None = None
    """Checkpoint to continue from, and its content."""


def find_start(
    domain: str, config: RunSettings, folder: Path | None, *, max_epochs: int | None
) -> Start:
    """Return what a run starts with; folder: of the run to resume, None for a new one.

    Raises UserError where the run cannot be resumed, and for weights or parts of another model.
    """
    start, settings = config.run.start, to_plain(config)
    if folder is not None:
        path, content = find_checkpoint(folder)
        check_resumable(path, content, domain=domain, settings=settings, max_epochs=max_epochs)
        header = content["triptych"]
        before = header["run"]["start"]
        if start.init_from is None and before["init_from"] is not None:
            names = ("init_from", "init_vocabulary")
            start = replace(start, **{name: before[name] for name in names})
            config = replace(config, run=replace(config.run, start=start))
        vocabulary = header["vocabulary"] if before["init_from"] is not None else None
        return Start(config, vocabulary, resumed=(path, content))
    if start.init_from is None:
        for name in ("train_only", "lora_rank"):
            if getattr(config.run.finetune, name):
                raise UserError(
                    f"run.finetune.{name} is set without run.start.init_from, so that new random "
                    "weights would never be trained; set run.start.init_from to a trained model"
                )
        return Start(config)
    content = read_checkpoint(start.init_from)
    header = content["triptych"]
    check_domain(header, domain, f"{OPTION} {start.init_from}")
    altered = changes(header, settings)
    sizes = [c for c in altered if c.alters_model() and c.name.rpartition(".")[2] in SIZES]
    if sizes:  # another n_heads would fit the weights
        raise UserError(f"{OPTION} is {start.init_from}, a model of other sizes: {listed(sizes)}")
    content = {**content, "state_dict": merged_weights(content)}
    if not any(each.alters_model() or each.name == "task.class_path" for each in altered):
        check_parts(config, core_weights(content["state_dict"]))
    own = start.init_vocabulary == "data"
    return Start(config, None if own else header["vocabulary"], initial=content)


def initialize_from(task: TrainingModule, content: dict[str, Any]) -> None:
    """Load `Start.initial` into a new run (of best.ckpt the moving average) and say what differs.

    Raises UserError for a vocabulary or weight that does not fit, and new weights that are frozen.
    """
    header, name = content["triptych"], str(task.config.run.start.init_from)
    altered = [c for c in changes(header, to_plain(task.config)) if c.alters_model()]
    why = listed(altered, "; settings that differ: ")
    own = task.state_dict()
    weights, new = task.initial_weights(header, content["state_dict"])
    maps: list[RowMap] = []
    if task.config.run.start.init_vocabulary == "data":
        maps = task.row_maps(header["vocabulary"])
        weights = with_rows(own, weights, maps)
    elif not task.same_vocabulary(header["vocabulary"]):
        raise UserError(
            f"{OPTION} is {name}, whose vocabulary is another than that of these data{why}; the "
            "weights would mean something else"
        )
    begun = {key: own[key] for key in own if is_adapter(key) or key.startswith(new)}
    # Parts that the checkpoint's model lacked, and that change nothing as long as they are zero.
    known = {**begun, **weights}
    added = {key: own[key] for key in own if key not in known and not own[key].any()}
    weights = {**known, **added}
    if (wrong := misfit(weights, own)) is not None:
        raise UserError(f"{OPTION} is {name}, but {wrong}{why}")
    _check_trained(task, maps, new)
    task.load_state_dict(weights)
    if maps:
        say(f"Vocabulary of the data: {'; '.join(map(str, maps))}.")
    if new:
        say(f"Starting anew: {', '.join(map(_part, new))}.")
    if added:
        say(f"Starting at zero, without an effect: {', '.join(map(_part, added))}.")
    for change in altered:
        say(f"Other than in {name}: {change}.")
    say(f"Starting with the weights of {name}, step {header['step']}.")


def start_from_vectors(task: TrainingModule, path: str, *, freeze: bool) -> dict[str, int]:
    """Fill the embeddings with the vectors of a file; say and return how many tokens, words and
    covered words there are. Raises UserError as `place_vectors`, and for models without words.
    """
    target = task.word_rows()
    fixed = place_vectors(target, path)
    n_words = sum(word is not None for word in target.words)
    say(
        f"Word vectors of {path}: {len(fixed.rows):,} of {n_words:,} tokens that are words "
        f"({len(fixed.rows) / n_words:.1%}){', frozen' if freeze else ''}; "
        f"{len(target.words) - len(fixed.rows):,} embeddings start at random."
    )
    task.fixed_rows = fixed if freeze else None
    return {"tokens": len(target.words), "words": n_words, "covered": len(fixed.rows)}


def _check_trained(task: TrainingModule, maps: list[RowMap], new: tuple[str, ...]) -> None:
    """Raise UserError where weights that start anew would stay random, because they are frozen."""
    parameters = task.named_parameters(remove_duplicate=False)
    frozen = [name for name, parameter in parameters if not parameter.requires_grad]
    rows = {name for each in maps if each.n_new for name in each.weights}
    parts = [_part(name.rpartition(".")[0]) for name in frozen if name in rows]
    parts += [_part(each) for each in new if any(name.startswith(each) for name in frozen)]
    if parts:
        named = ", ".join(dict.fromkeys(parts))
        symbols = [f"{each.n_new:,} new {each.what}" for each in maps if each.n_new]
        raise UserError(
            f"run.finetune.train_only leaves out {named}, so that "
            f"{' and '.join(symbols) or 'what starts anew'} would stay random; add {named} to it"
        )


def _part(prefix: str) -> str:
    """Return the name of a part for a user: `task_head` for `model.task_head.`."""
    return prefix.removeprefix("model.").rstrip(".")
