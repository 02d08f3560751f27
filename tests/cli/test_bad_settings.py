"""`triptych train`: mistakes in settings, options over files, --print_config, the Trainer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytorch_lightning import strategies

from triptych.config.schema import from_plain, to_plain
from triptych.domains.image import task as task_module
from triptych.domains.image.config import Config
from triptych.errors import UserError
from triptych.training.callbacks.checkpointing import KeepCheckpoints
from triptych.training.run import trainer as run_module
from triptych.training.run.checks import build_trainer, check_settings
from triptych.training.run.settings import ComputeConfig, LogConfig, RunConfig, RunSettings


def probe(**trainer: Any) -> Any:
    trainer = {"max_steps": 9, "accelerator": "cpu", **trainer}
    keep = KeepCheckpoints(Path("checkpoints"), minutes=0)
    return build_trainer(RunSettings(None, None), trainer, keep)


RELATIVE = "triptych.core.attention.relative.Relative"
ATTENTION = "model: {transformer: {attention: %s}}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modle: {transformer: {n_layers: 2}}", ["line 1", "did you mean model?"]),
        (
            "run: {name: a}\nmodel:\n  transformer:\n    n_layer: 2",
            ["line 4", "did you mean model.transformer.n_layers"],
        ),
        ("trainer: {max_step: 3}", ["did you mean trainer.max_steps?"]),
        ("run:\n  seed: two", ["line 2", "run.seed must be a whole number,", "got two"]),
        ("model: {transformer: {n_layers: 2.5}}", ["a whole number, got 2.5"]),
        (
            "optim: {schedule: {class_path: Cosine, init_args: {warmup_steps: -1}}}",
            ["optim.schedule.warmup_steps must be at least 0, got -1"],
        ),
        ("run: {wandb: off}", ["must be one of auto, online", "got false", "quote"]),
        ("model: 3", ["model is a group of settings (transformer,", "got 3"]),
        ("model: {transformer: {d_model: 30, n_heads: 4}}", ["n_heads must divide d_model"]),
        (ATTENTION % "{class_path: Relativ}", ["Relativ is not a kind", "Relative"]),
        (
            ATTENTION % "{class_path: Relative, init_args: {max_distanc: 3}}",
            ["did you mean model.transformer.attention.max_distance?"],
        ),
        (
            ATTENTION % "{class_pth: Relative}",
            ["did you mean model.transformer.attention.class_path?"],
        ),
        (
            ATTENTION % "{class_path: Relative, max_distance: 3}",
            ["model.transformer.attention.max_distance", "allowed here: class_path, init_args"],
        ),
        (
            ATTENTION % "torch.nn.Linear",
            ["is not a kind of AttentionConfig", "Full, GroupedQueries"],
        ),
        ("resume: auto", ["unknown key resume"]),
        ("trainer: {accelerator: cpu}", ["nothing says when to stop", "max_steps"]),
    ],
    ids=lambda value: value.replace("\n", "|")[:60] if isinstance(value, str) else "",
)
def test_a_mistake_in_the_file(refused, tmp_path: Path, text: str, says: list[str]) -> None:
    (tmp_path / "slip.yaml").write_text(text, encoding="utf-8")
    answer = refused("train", "image", "--config", "slip.yaml", says=says)
    assert "slip.yaml" in answer or "nothing says" in answer


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--model.transformer.n_layer 3", "did you mean --model.transformer.n_layers?"),
        ("--model.transformer.n_layers", "--model.transformer.n_layers: expected one argument"),
        ("--model big", "model: Unable to load config"),
        ("--run.name ../up", "name is '../up'"),
        (
            "--model.transformer.attention Relative --model.transformer.attention.max_distance 0",
            "the command line: model.transformer.attention.max_distance must be at least 1",
        ),
        (
            "--model.transformer.attention.init_args.far 3",
            "full.Full: unknown key model.transformer.attention.far",
        ),
        ("--data.source MNIST", "are required: directory"),
        ("--trainer.max_step 3", "did you mean --trainer.max_steps?"),
        ("--trainer.precision x", "32-true, bf16-mixed"),
        ("--trainer.accelerator x", "trainer.accelerator"),
        ("--trainer.limit_val_batches 1.5", "trainer.limit_val_batches"),
        ("--trainer.gradient_clip_val -1", "at least 0, got -1"),
        ("--trainer.val_check_interval 0", "trainer.val_check_interval must be above 0"),
        ("--trainer.max_steps 0", "trainer.max_steps is 0"),
        ("--trainer.overfit_batches 1", "overfit_batches is set"),
        ("--trainer.precision 16-mixed", "trainer.precision is 16-mixed, which needs a CUDA"),
        (
            "--optim.schedule Cosine --trainer.max_steps -1 --trainer.max_time 00:00:01:00",
            "optim.schedule is Cosine, which needs an end",
        ),
        ("--resume", "nothing to resume"),
        ("--resume last.ckpt", "--resume takes auto and no file, got last.ckpt"),
        ("--config", "--config needs the name"),
        ("--config digitz.yaml", "digitz.yaml does not exist; did you mean digits.yaml?"),
        ("--config no/d.yaml", "nor does its folder no"),
    ],
)
def test_a_mistake_in_the_options(refused, digits_yaml: Path, options: str, says: str) -> None:
    refused("train", "image", "--config", digits_yaml.name, *options.split(), says=[says])


def test_a_file_of_another_domain(refused, digits_yaml: Path) -> None:
    for domain in ("translation", "music"):
        refused("train", domain, "--config", "digits.yaml", says=["digits.yaml, line", "unknown"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--trainer.val_check_interval 999", "val_check_interval is 999, but an epoch has 180"),
        (
            "--trainer.limit_train_batches 2 --trainer.val_check_interval 3",
            "val_check_interval is 3, but an epoch has 2 batches",
        ),
        (
            "--trainer.limit_train_batches 0.001",
            "limit_train_batches is 0.001, which leaves none of 180 batches; expected at least",
        ),
        ("--trainer.limit_val_batches 0.01", "limit_val_batches is 0.01, which leaves none of"),
    ],
)
def test_limits_that_leave_nothing(cli, digits_yaml: Path, options: str, says: str) -> None:
    """Lightning tells this by a traceback after the run's folder is made."""
    every = ["--trainer.check_val_every_n_epoch", 1]
    answer = cli("train", "image", "--config", "digits.yaml", *every, *options.split())
    assert answer.code == 2
    assert f"trainer.{says}" in answer.err
    assert not Path("runs").exists()


def test_copies_of_the_process_do_not_train() -> None:
    for strategy in ("ddp_spawn", "ddp_fork"):
        with pytest.raises(UserError, match=f"trainer.strategy {strategy} trains in copies"):
            probe(devices=2, strategy=strategy)


@pytest.mark.parametrize(
    "strategy", ["deepspeed_stage_3", strategies.FSDPStrategy(), strategies.ModelParallelStrategy()]
)
def test_other_ways_to_share_the_weights_are_refused(strategy: Any) -> None:
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    with pytest.raises(UserError, match=f"trainer.strategy is {name}; [^\n]* use fsdp"):
        probe(devices=2, strategy=strategy)


@pytest.mark.parametrize(
    ("run", "trainer", "says"),
    [
        ({"compute": ComputeConfig(compile=True)}, {}, "run.compute.compile is True"),
        ({"log": LogConfig(histograms=5)}, {}, "run.log.histograms is 5"),
        ({}, {"precision": "16-true"}, "trainer.precision is 16-true"),
    ],
)
def test_what_needs_whole_weights_is_refused_with_shared_ones(
    run: dict[str, Any], trainer: dict[str, Any], says: str
) -> None:
    config = RunSettings(None, None, run=RunConfig(**run))
    with pytest.raises(UserError, match=says):
        check_settings(config, {"max_steps": 1, "strategy": "fsdp", **trainer})


@pytest.mark.parametrize("strategy", ["ddp_find_unused_parameters_true", strategies.DDPStrategy()])
def test_every_form_of_ddp_is_allowed(strategy: Any) -> None:
    assert probe(devices=2, strategy=strategy).world_size == 2


def test_a_strategy_that_lacks_its_library_is_told(refused, digits_yaml: Path) -> None:
    kind = {"class_path": "pytorch_lightning.strategies.DeepSpeedStrategy"}
    Path("second.yaml").write_text(yaml.safe_dump({"trainer": {"strategy": kind}}))
    says = ["trainer.strategy cannot be pytorch_lightning.strategies.DeepSpeed", "deepspeed"]
    refused("train", "image", "--config", "digits.yaml", "--config", "second.yaml", says=says)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--run.seed", 5], "run.seed was 0, is 5"),
        (["--trainer.max_epochs", 1], ", but trainer.max_epochs is 1; expected at least"),
    ],
)
def test_a_resume_that_cannot_be_is_refused_before_the_data_are_read(
    cli, digits_yaml: Path, monkeypatch: pytest.MonkeyPatch, options: list[Any], says: str
) -> None:
    epochs = ["--trainer.limit_train_batches", 1]
    assert cli("train", "image", "--config", "digits.yaml", *epochs).code == 0
    monkeypatch.setattr(task_module, "prepare", None)
    answer = cli("train", "image", "--config", "digits.yaml", "--resume", *options)
    assert (answer.code, says in answer.err) == (2, True), answer.err


@pytest.fixture
def trained(cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Config, dict, bool]]:
    """What a training would have been called with."""

    def call(*arguments: Any) -> tuple[Config, dict[str, Any], bool]:
        found: list[Any] = []

        def record(domain, config, prepare, trainer, resume) -> Path:
            found.append((config, trainer, resume))
            return Path("runs")

        monkeypatch.setattr(run_module, "train", record)
        answer = cli("train", "image", *arguments)
        assert answer.code == 0, answer.err
        return found[0]

    return call


def test_options_win_over_the_file_wherever_they_stand(trained, digits_yaml: Path) -> None:
    file = ["--config", digits_yaml.name]
    options = ["--model.transformer.n_layers", 2, "--run.seed=7", "--trainer.max_steps", 5]
    for arguments in (file + options, options + file, [*options, "--config=digits.yaml"]):
        config, trainer, resume = trained(*arguments)
        found = (config.model.transformer.n_layers, config.run.seed, trainer["max_steps"])
        assert found == (2, 7, 5)
        assert config.model.transformer.d_model == 16, "the rest of the file holds"
        assert resume is False


def test_of_two_files_the_later_wins(trained, digits_yaml: Path) -> None:
    Path("second.yaml").write_text("model: {transformer: {n_layers: 3}}\n")
    config, *_ = trained("--config", "digits.yaml", "--config", "second.yaml")
    assert (config.model.transformer.n_layers, config.model.transformer.d_model) == (3, 16)


def test_settings_of_a_class_by_dotted_options(trained, digits_yaml: Path) -> None:
    from triptych.core.attention.local1d import Local1D
    from triptych.core.attention.relative import Relative

    file = ["--config", "digits.yaml"]
    deep = ["--model.transformer.attention.init_args.max_distance", 5]
    for name in (RELATIVE, "Relative"):
        config, *_ = trained(*file, "--model.transformer.attention", name, *deep)
        assert config.model.transformer.attention == Relative(max_distance=5)
    short = ["--model.transformer.attention.max_distance", 6]
    config, *_ = trained(*file, "--model.transformer.attention", RELATIVE, *short)
    assert config.model.transformer.attention == Relative(6)

    content = yaml.safe_load(digits_yaml.read_text())
    content["model"]["transformer"]["attention"] = to_plain(Local1D(block=4, memory=4))
    digits_yaml.write_text(yaml.safe_dump(content))
    config, *_ = trained(*file, "--model.transformer.attention.init_args.memory", 8)
    assert config.model.transformer.attention == Local1D(block=4, memory=8)
    config, *_ = trained(*file, "--model.transformer.attention", RELATIVE)
    assert config.model.transformer.attention == Relative()


def test_devices_and_strategy_reach_the_trainer(trained, digits_yaml: Path) -> None:
    options = ["--trainer.devices", 2, "--trainer.strategy", "ddp", "--trainer.num_nodes", 1]
    _, trainer, _ = trained("--config", "digits.yaml", *options)
    of_file = yaml.safe_load(digits_yaml.read_text())["trainer"]
    assert trainer == {**of_file, "devices": 2, "strategy": "ddp", "precision": "auto"}


def test_a_strategy_by_its_class(trained, digits_yaml: Path) -> None:
    from pytorch_lightning.strategies import DDPStrategy

    options = [
        "--trainer.strategy", "pytorch_lightning.strategies.DDPStrategy",
        "--trainer.strategy.process_group_backend", "gloo",
    ]  # fmt: skip
    _, trainer, _ = trained("--config", "digits.yaml", *options)
    assert isinstance(trainer["strategy"], DDPStrategy)
    assert trainer["strategy"].process_group_backend == "gloo"


def test_print_config_prints_what_would_run_and_runs_nothing(
    cli, trained, digits_yaml: Path, tmp_path: Path
) -> None:
    attention = "--model.transformer.attention"
    options = [attention, RELATIVE, f"{attention}.init_args.max_distance", 5]
    options += ["--trainer.devices", 2, "--trainer.strategy", "ddp", "--run.seed", 3]
    answer = cli("train", "image", *options, "--config", "digits.yaml", "--print_config")
    assert answer.code == 0
    assert answer.err == ""
    assert [path.name for path in tmp_path.iterdir()] == ["digits.yaml"]

    printed = yaml.safe_load(answer.out)
    assert set(printed) == {"data", "model", "optim", "run", "trainer"}
    Path("printed.yaml").write_text(answer.out)
    first = trained("--config", "digits.yaml", *options)
    second = trained("--config", "printed.yaml")
    assert first == second
    del printed["trainer"]
    assert from_plain(Config, printed) == first[0]


@pytest.mark.parametrize("form", [["--data.source.help", "ImageFolder"], ["--data.source.help="]])
def test_the_settings_of_a_class_are_shown_without_a_file(cli, form: list[str]) -> None:
    if form[0].endswith("="):
        form = [form[0] + "triptych.domains.pictures.image_folder.ImageFolder"]
    answer = cli("train", "image", *form)
    assert answer.code == 0, answer.err
    assert "--data.source.resize" in answer.out


def test_a_whole_number_of_batches_is_not_a_share_of_them() -> None:
    from triptych.cli.options import parser_of
    from triptych.domains import find_domain

    options = ["--trainer.limit_train_batches", "1", "--trainer.limit_val_batches", "1.0"]
    trainer = parser_of("train", find_domain("image")).parse_args(options).trainer
    assert type(trainer.limit_train_batches) is int
    assert type(trainer.limit_val_batches) is float
