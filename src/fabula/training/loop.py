"""The training loop: plain PyTorch, one for every kind of model, resumable to the bit on the CPU."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from fabula.corpus.dataset import Corpus
from fabula.device import pick_device
from fabula.errors import UserError
from fabula.models.io import Checkpoint, write_file
from fabula.models.io.tensors import owners
from fabula.training.corpus_model import CorpusLearner
from fabula.training.learner import Learner
from fabula.training.recipe import AdapterRecipe, Recipe
from fabula.training.resume import Progress, interruptible, read_log, read_state, write_state

CHECK_EVERY = 50
"""Steps between two looks at the loss: a look makes the host wait for the device."""
Report = Callable[[dict[str, Any]], None]


def train(
    recipe: Recipe, corpus: Corpus, out: Path, *, device: str = "cpu", resume: bool = False, bar: bool = True,
    report: Report | None = None, start: Checkpoint | None = None,
) -> Checkpoint:  # fmt: skip
    """Train a model of a prepared corpus; returns the checkpoint that `out` holds by then.

    `start` is a model whose weights the run begins from.
    """
    learner = CorpusLearner(recipe, corpus, pick_device(device), start)
    run = Run(learner, out)
    run.to_the_end(resume=resume, bar=bar, report=report)
    return learner.checkpoint(run.best())


def train_adapter(
    recipe: AdapterRecipe, data: Path, out: Path, *, device: str = "cpu", resume: bool = False, bar: bool = True,
    report: Report | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Adapt the pretrained base to the raw stories in a folder; `out` then holds the adapter. Returns its figures."""
    # Only here: the tokenizer is a library that machines which train other models need not have.
    from fabula.training.critic import CriticLearner
    from fabula.training.narrator import AdapterLearner, NarratorLearner
    from fabula.training.preference import PreferenceLearner

    learners: dict[str, Any] = {"narrator": NarratorLearner, "preference": PreferenceLearner, "critic": CriticLearner}
    learner: AdapterLearner = learners[recipe.kind](recipe, data, pick_device(device))
    run = Run(learner, out)
    run.to_the_end(resume=resume, bar=bar, report=report)
    return learner.figures(run.progress.step, read_log(out)[-1])


class Run:
    """A learner with its optimiser, its progress and its folder."""

    def __init__(self, learner: Learner, out: Path) -> None:
        self.learner, self.network, self.device, self.out = learner, learner.network, learner.device, out
        self.settings = learner.recipe.train
        self.optimiser = torch.optim.AdamW(
            learner.parameter_groups(), weight_decay=self.settings.weight_decay, fused=self.device.type == "cuda"
        )
        parameters = self.network.named_parameters()
        self.average = {n: t.detach().clone() for n, t in parameters} if self.settings.average else {}
        self.progress = Progress()
        self.sums = torch.zeros(len(learner.terms), device=self.device, dtype=torch.float64)
        self.first_bad = torch.full((), -1, device=self.device)

    def to_the_end(self, *, resume: bool, bar: bool, report: Report | None) -> None:
        """All epochs, or fewer by patience; the folder then holds the model, and the network its weights."""
        if resume:
            self.restore()
        p = self.progress
        with interruptible() as interrupted:
            while p.epoch < self.settings.epochs and not self.patience_is_out():
                began = time.perf_counter()
                batches = self.learner.batches(p.epoch)
                title = f"epoch {p.epoch + 1}"
                # Closed before an interruption is reported, so that the message has a line of its own.
                with tqdm(batches, desc=title, unit="batch", disable=not bar, leave=False, mininterval=0.5) as shown:
                    for number, batch in enumerate(shown):
                        if number < p.step_in_epoch:
                            continue
                        self.step(batch, len(batches))
                        if p.step % CHECK_EVERY == 0 or number == len(batches) - 1:
                            self.look()
                            shown.set_postfix({name: round(v / p.stories, 2) for name, v in p.sums.items() if v})
                        if interrupted():
                            self.keep()
                            raise KeyboardInterrupt
                self.end_epoch(time.perf_counter() - began, report)
        self.learner.finish(self.out)
        self.network.eval()

    def step(self, batch: Any, per_epoch: int) -> None:
        """One batch: loss, gradients, weights. Nothing here waits for the device."""
        p = self.progress
        self.network.train()
        rate = p.scale * self.learner.rate(p.step, per_epoch * self.settings.epochs)
        for group in self.optimiser.param_groups:
            group["lr"] = group["full_rate"] * rate
        self.optimiser.zero_grad(set_to_none=True)
        loss, terms = self.learner.loss(batch, p.step, per_epoch)
        loss.backward()
        with torch.no_grad():
            bad = (self.first_bad < 0) & ~torch.isfinite(loss.detach())
            self.first_bad = torch.where(bad, torch.full_like(self.first_bad, p.step), self.first_bad)
            self.sums += terms.detach().double() * len(batch)
        nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip)
        self.optimiser.step()
        if self.average:
            # Early on a young average forgets fast, so that it does not drag the first weights along.
            decay = min(self.settings.average, (p.step + 1) / (p.step + 10))
            weights: list[Tensor] = [parameter.detach() for parameter in self.network.parameters()]
            torch._foreach_lerp_(list(self.average.values()), weights, 1 - decay)
        p.step += 1
        p.step_in_epoch += 1
        p.stories += len(batch)

    def look(self) -> None:
        """Bring the sums to the host, and stop if the loss is not finite."""
        if int(self.first_bad) >= 0:
            saved = f"the last good checkpoint is kept in {self.out}"
            saved = saved if self.progress.best_epoch >= 0 else "no epoch had ended, so nothing is kept"
            advice = "lower the learning rate or the gradient norm (clip) and train again"
            raise UserError(f"the loss became NaN or infinite at step {int(self.first_bad)}; {saved}: {advice}")
        for name, value in zip(self.learner.terms, self.sums.tolist(), strict=True):
            self.progress.sums[name] = self.progress.sums.get(name, 0.0) + value
        self.sums.zero_()

    def end_epoch(self, seconds: float, report: Report | None) -> None:
        """Validate, log, keep the best, slow down on a plateau, and write what a resumed run needs."""
        p, settings = self.progress, self.settings
        figure, valid_terms = self.validate()
        if not math.isfinite(figure):
            raise UserError(f"the validation figure is {figure} after epoch {p.epoch + 1}; nothing was replaced")
        better = figure < p.best or settings.keep == "last"
        entry = {
            "epoch": p.epoch + 1, "step": p.step, "train": {name: value / p.stories for name, value in p.sums.items()},
            "valid": valid_terms, "valid_nll": figure, "best": better, "rate": p.scale, "seconds": round(seconds, 3),
            "stories_per_second": round(p.stories / seconds, 1),
        }  # fmt: skip
        if better:
            p.best, p.best_epoch, p.bad_epochs = figure, p.epoch, 0
            self.learner.save(self.out, self.best(), self.weights())
        else:
            p.bad_epochs += 1
            p.scale *= settings.decay if settings.schedule == "plateau" else 1.0
        p.epoch, p.step_in_epoch, p.stories, p.sums = p.epoch + 1, 0, 0, {}
        self.log([*read_log(self.out), entry])
        self.keep()
        if report:
            report(entry)

    def log(self, entries: list[dict[str, Any]]) -> None:
        """Write the log whole, so that a full disk or a kill leaves no half line."""
        write_file(self.out / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in entries).encode())

    def best(self) -> dict[str, Any]:
        """The figures of the weights that are kept."""
        return {"valid_nll": self.progress.best, "epoch": self.progress.best_epoch + 1}

    def patience_is_out(self) -> bool:
        return self.progress.bad_epochs >= self.settings.patience

    def weights(self) -> dict[str, Tensor]:
        """The weights that are validated and kept: the running average where the recipe has one."""
        last = dict(self.network.state_dict())
        averaged = {**last, **self.average}
        return {name: averaged[owner] for name, owner in owners(last).items()}

    def validate(self) -> tuple[float, dict[str, float]]:
        """The learner's validation figure of `weights`."""
        last = {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}
        self.network.load_state_dict(self.weights())
        self.network.eval()
        figures = self.learner.validate()
        self.network.load_state_dict(last)
        return figures

    def keep(self) -> None:
        """Write what a resumed run needs, whole or not at all."""
        self.look()
        write_state(self.out, self.progress, self.learner.recipe, self.learner.data_hash, self.tensors())

    def tensors(self) -> dict[str, Tensor]:
        """Weights, averages, moments and the state of the random numbers."""
        tensors = {f"model.{n}": t.clone() for n, t in self.network.state_dict().items()}
        tensors |= {f"average.{n}": t for n, t in self.average.items()}
        for index, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{n}": t for n, t in moments.items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        return tensors

    def restore(self) -> None:
        """Continue where `keep` left off."""
        progress, tensors = read_state(self.out, self.learner.recipe, self.learner.data_hash)
        vars(self.progress).update(vars(progress))
        # A run that was killed between its log and its state has logged an epoch that will now be run again.
        self.log([entry for entry in read_log(self.out) if entry["epoch"] <= self.progress.epoch])
        self.network.load_state_dict(tensors["model"])
        for name, tensor in tensors.get("average", {}).items():
            self.average[name].copy_(tensor)
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors["adam"].items():
            index, _, moment = name.partition(".")
            state.setdefault(int(index), {})[moment] = tensor
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": state, "param_groups": groups})
        torch.set_rng_state(tensors["random"]["cpu"])
        if self.device.type == "cuda" and "cuda" in tensors["random"]:
            torch.cuda.set_rng_state(tensors["random"]["cuda"], self.device)
