"""Teachers of a run: opened by any domain, with adapters too, and refused where they do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_music import Chorales
from torch.nn import functional as F

from triptych import load
from triptych.core.positions import NoPositions
from triptych.core.transformer import TransformerConfig
from triptych.decoding.sampling import SampleRequest
from triptych.domains.music.config import Augmentation, Config, DataConfig, ModelConfig
from triptych.domains.music.domain import DOMAIN
from triptych.domains.music.generation import sample_pieces
from triptych.domains.music.model import MelodyEncoder
from triptych.errors import UserError
from triptych.training.engine.objective import DistillationConfig, ObjectiveConfig
from triptych.training.run.checkpoint import average_weights, header, read_checkpoint
from triptych.training.run.settings import FineTuneConfig
from triptych.training.run.trainer import train


def config(*teachers: str, **settings: Any) -> Config:
    parts = TransformerConfig(n_layers=1, d_model=16, n_heads=2, positions=NoPositions())
    data = DataConfig(
        source=Chorales((20, 30), (46, 72)), sequence_length=64, overlap=0, batch_size=2
    )
    plain = Config(data=data, model=ModelConfig(parts))
    objective = ObjectiveConfig(distillation=DistillationConfig(list(teachers), **settings))
    return replace(plain, optim=replace(plain.optim, objective=objective))


def save(path: Path, settings: Config | None = None, **changed: Any) -> str:
    task, _, _ = DOMAIN.prepare(settings or config())
    for name, weight in task.named_parameters():
        if "head" in name or "lora" in name:
            torch.nn.init.normal_(weight)
    facts = header(task.metadata | changed, seed=0, step=3, metrics={})
    torch.save({"triptych": facts, "state_dict": task.state_dict()}, path)
    return str(path)


@pytest.mark.parametrize("semitones", [0, 2])
def test_a_run_learns_from_the_model_of_a_checkpoint(semitones: int, tmp_path: Path) -> None:
    path = save(tmp_path / "teacher.ckpt")
    task, loader, _ = DOMAIN.prepare(config(path, transpositions=semitones))
    plain, _, _ = DOMAIN.prepare(config())
    batch = next(iter(loader))
    assert all(part.training for part in task.modules()), "dropout is on"
    assert not any(part.training for teacher in task.teachers for part in teacher.modules())
    task.eval()
    values = batch.values.clamp(min=0)
    values[0, 5] = 0  # the lowest pitch: this row is not read lower
    batch.values[0, 5] = 0
    model = load(path, device="cpu").full_model
    every = []
    with torch.no_grad():
        for shift in range(-semitones, semitones + 1):
            # Id 46 is a rest; the other pieces keep clear of the lowest and the highest pitches.
            moved, before = (
                torch.where((ids < 0) | (ids == 46), ids, ids + shift)
                for ids in (values, batch.previous)
            )
            logits = model(moved.clamp(min=0), before)
            kept = [v for v in range(logits.shape[-1]) if v >= 46 or 0 <= v + shift < 46]
            p = torch.zeros_like(logits)
            p[..., kept] = logits[..., [v if v >= 46 else v + shift for v in kept]].softmax(-1)
            every.append(p)
    (teacher,) = task.teachers
    seen: list[set[int]] = [set(), set()]
    for _ in range(40):
        state = torch.get_rng_state()
        taught = task.predictions(teacher, batch)
        p = taught.head(taught.features).softmax(-1)
        for row, shifts in enumerate(seen):
            (shift,) = (s for s, one in enumerate(every) if torch.allclose(one[row], p[row]))
            shifts.add(shift - semitones)
        torch.set_rng_state(state)
        with torch.no_grad():
            loss = task.training_loss(batch)[0]
            log_q = task.model(values, batch.previous).log_softmax(-1)
            of_data = F.nll_loss(log_q[batch.scored], values[batch.scored])
        apart = F.kl_div(log_q, p, reduction="none").sum(-1)[batch.scored].mean()
        torch.testing.assert_close(loss, (of_data + apart) / 2)
    assert seen == [set(range(semitones + 1)), set(range(-semitones, semitones + 1))]
    assert list(task.state_dict()) == list(plain.state_dict())


def test_training_on_pieces_that_the_teacher_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, at any place, and no piece of the data; a mean of transpositions draws none."""
    monkeypatch.setattr("triptych.domains.music.inference.DRAWN_TOGETHER", 2)
    path = save(tmp_path / "teacher.ckpt")
    settings = config(path, transpositions=1, drawn=3, drawn_temperature=0.7)
    data = replace(settings.data, augmentation=Augmentation(transpose=0))
    _, loader, validation = DOMAIN.prepare(replace(settings, data=data))
    teacher = load(path, device="cpu")
    drawn = []
    for seed, count in ((0, 2), (2, 1)):
        request = SampleRequest.of(count, seed=seed, temperature=0.7)
        drawn += sample_pieces(teacher.model, teacher.settings, request, length=32)
    assert {len(ids) for ids in drawn} == {128}, "two windows"
    pieces = {tuple(ids[at : at + 64]): n for n, ids in enumerate(drawn) for at in (0, 64)}
    windows = [tuple(row.tolist()) for batch in loader for row in batch.values]
    assert len(windows) == 6
    assert {pieces[window] for window in windows} == {0, 1, 2}
    _, _, of_data = DOMAIN.prepare(config())
    assert all(torch.equal(a.values, b.values) for a, b in zip(validation, of_data, strict=True))


@pytest.mark.parametrize("drawn", [0, 3])
def test_a_resumed_run_with_a_teacher_is_the_uncut_one(drawn: int, tmp_path: Path) -> None:
    """Bit for bit, with the dropout of both passes of R-Drop, and with pieces that are drawn."""
    teacher = save(tmp_path / "teacher.ckpt")
    trainer = {"accelerator": "cpu", "precision": "32-true", "limit_val_batches": 0}

    def go(name: str, steps: int, *, resume: bool = False) -> dict[str, Any]:
        plain = config(teacher, transpositions=1, drawn=drawn)
        objective = replace(plain.optim.objective, r_drop=1.0)
        run = replace(plain.run, name=name, directory=str(tmp_path), wandb="off")
        settings = replace(plain, optim=replace(plain.optim, objective=objective), run=run)
        train("music", settings, DOMAIN.prepare, {**trainer, "max_steps": steps}, resume)
        return read_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt")

    uncut, first = go("uncut", 5), go("cut", 2)
    cut = go("cut", 5, resume=True)
    states = [content["optimizer_states"][0]["state"] for content in (uncut, cut)]
    torch.testing.assert_close(*states, rtol=0, atol=0)
    for name, weight in uncut["state_dict"].items():
        assert torch.equal(weight, cut["state_dict"][name])
    moved = "decoder.blocks.0.feed_forward.fc1.weight"
    assert not torch.equal(
        cut["state_dict"][f"model.{moved}"], first["state_dict"][f"model.{moved}"]
    )


def test_models_with_adapters_are_averaged_with_these_merged(tmp_path: Path) -> None:
    """The mean of the weights, that of the probabilities, and a teacher; of any dropout."""
    paths, merged = [], []
    for seed in (1, 2):
        finetune = FineTuneConfig(lora_rank=2, lora_alpha=6.0)
        settings = config()
        parts = replace(settings.model.transformer, dropout=seed / 10)
        settings = replace(
            settings,
            run=replace(settings.run, seed=seed, finetune=finetune),
            model=replace(settings.model, transformer=parts),
        )
        paths.append(Path(save(tmp_path / f"{seed}.ckpt", settings)))
        state = read_checkpoint(paths[-1])["state_dict"]
        merged.append({name: w.clone() for name, w in state.items() if "lora" not in name})
        for name in state:
            if name.endswith("lora_a"):
                layer = name.removesuffix("lora_a")
                merged[-1][f"{layer}weight"] += 3 * state[f"{layer}lora_b"] @ state[name]
        assert len(merged[-1]) < len(state)
    mean = average_weights(paths)["state_dict"]
    assert mean.keys() == merged[0].keys()
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (merged[0][name] + merged[1][name]) / 2)

    task, loader, _ = DOMAIN.prepare(config(*map(str, paths), weight=1.0))
    task.eval()
    batch = next(iter(loader))
    inputs = batch.values.clamp(min=0), batch.previous
    shares = []
    with torch.no_grad():
        for weights in merged:
            task.load_state_dict(weights)
            shares.append(task.model(*inputs).softmax(-1))
    both = load(paths[0], device="cpu").averaged(load(paths[1], device="cpu"))
    p = (shares[0] + shares[1]) / 2
    torch.testing.assert_close(both.full_model(*inputs).exp(), p, rtol=1e-3, atol=1e-4)
    log_q = task.model(*inputs).log_softmax(-1)
    apart = (p * (p.log() - log_q)).sum(-1)[batch.scored].mean()
    torch.testing.assert_close(task.training_loss(batch)[0], apart, rtol=1e-3, atol=0)


def test_teachers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.ckpt cannot be read"):
        DOMAIN.prepare(config(str(tmp_path / "none.ckpt")))
    with pytest.raises(UserError, match=r"a\.ckpt is of the domain image"):
        DOMAIN.prepare(config(save(tmp_path / "a.ckpt", domain="image")))
    with pytest.raises(UserError, match=r"the teacher .*b\.ckpt does not .* sequence_length"):
        DOMAIN.prepare(config(save(tmp_path / "b.ckpt", sequence_length=128)))
    accompanist = replace(config(), model=replace(config().model, melody=MelodyEncoder()))
    teacher = load(save(tmp_path / "c.ckpt", accompanist), device="cpu")
    with pytest.raises(UserError, match=r"c\.ckpt accompanies a melody"):
        teacher.drawn_batches(config("c.ckpt", drawn=3))
    with pytest.raises(ValueError, match=r"drawn is 3, but there are no teachers"):
        config(drawn=3)
    with pytest.raises(UserError, match=r"pretrained:mnist is of the domain image"):
        load("pretrained:mnist", device="cpu").drawn_batches(config(drawn=0))
