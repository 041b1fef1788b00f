"""The training loop: plain PyTorch, one function, resumable to the bit on the CPU.

Over 400 lines: a run with its optimiser, its batches, its log and its resumption; they share one state.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from fabula.corpus.dataset import Corpus
from fabula.corpus.people import People
from fabula.corpus.states import UNKNOWN, Factor, StateSpace
from fabula.device import pick_device
from fabula.errors import UserError
from fabula.models.batch import IntArray, StoryDataset
from fabula.models.build import build
from fabula.models.io import Checkpoint, load, save, write_file
from fabula.models.io.adopt import adopt
from fabula.models.io.tensors import owners
from fabula.models.protocol import Model, Terms
from fabula.models.slds import SLDS
from fabula.training.objective import log_q_of, terms
from fabula.training.parallel import ALONE, Processes, joined, own_device, seed_part
from fabula.training.recipe import ObjectiveSettings, Recipe
from fabula.training.resume import Progress, interruptible, read_log, read_state, under, write_state
from fabula.training.tags import settle_tags

CHECK_EVERY = 50
"""Steps between two looks at the loss: a look makes the host wait for the device."""


def train(
    recipe: Recipe,
    corpus: Corpus,
    out: Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    bar: bool = True,
    report: Callable[[dict[str, Any]], None] | None = None,
    start: Checkpoint | None = None,
) -> Checkpoint:
    """Train until patience or epochs run out; returns the best checkpoint, which `out` holds by then.

    `start` is a model whose weights the run begins from (`training/adopt.py`).
    """
    where = own_device(pick_device(device))
    with joined(where) as processes, interruptible() as interrupted:
        run = Run(recipe, corpus, out, where, start, processes)
        if resume:
            run.restore()
        settings, p = recipe.train, run.progress
        bar = bar and processes.first
        while p.epoch < settings.epochs and not run.patience_is_out():
            began = time.perf_counter()
            rng = np.random.default_rng([settings.seed, p.epoch])
            batches = list(run.train_stories.bucketed(settings.batch, rng))
            title = f"epoch {p.epoch + 1}"
            # Closed before an interruption is reported, so that the message has a line of its own.
            with tqdm(batches, desc=title, unit="batch", disable=not bar, leave=False, mininterval=0.5) as shown:
                for number, rows in enumerate(shown):
                    if number < p.step_in_epoch:
                        continue
                    run.step(rows, len(batches))
                    if p.step % CHECK_EVERY == 0 or number == len(batches) - 1:
                        run.look()
                        shown.set_postfix(run.terms_per_story())
                    if processes.any(interrupted(), where):
                        run.keep()
                        raise KeyboardInterrupt
            run.end_epoch(time.perf_counter() - began, report)
        run.finish()
        return run.checkpoint()


class Run:
    """A model in training with its optimiser, its data and its folder."""

    def __init__(
        self, recipe: Recipe, corpus: Corpus, out: Path, device: torch.device, start: Checkpoint | None = None,
        processes: Processes = ALONE,
    ) -> None:  # fmt: skip
        settings = recipe.train
        self.recipe, self.corpus, self.out, self.device = recipe, corpus, out, device
        self.processes, self.parts = processes, processes.parts(settings.parts)
        torch.manual_seed(settings.seed)
        p_initial = torch.from_numpy(np.asarray(corpus.transitions.p_initial))
        p_next = torch.from_numpy(np.asarray(corpus.transitions.p_next))
        self.model: Model = build(recipe.model, len(corpus.vocabulary), p_initial, p_next).to(device)
        if start is not None:
            adopt(self.model, corpus.vocabulary, tuple(corpus.labels), start)
        processes.from_first(list(self.model.state_dict().values()))
        self.train_stories = StoryDataset(corpus.split("train"), device)
        self.valid_stories = StoryDataset(corpus.split("valid"), device)
        self.labelled = labelled_rows(len(self.train_stories), recipe.objective)
        hide_tags(self.train_stories, self.labelled)
        hide_factors(self.train_stories, recipe)
        groups = parameter_groups(self.model, recipe)
        fused = {"fused": True} if device.type == "cuda" else {}
        self.optimiser = torch.optim.AdamW(groups, weight_decay=settings.weight_decay, **fused)  # type: ignore[arg-type]
        self.average = {n: t.detach().clone() for n, t in self.model.named_parameters()} if settings.average else {}
        self.half = settings.precision == "bfloat16" and device.type == "cuda"
        self.people = People.count(corpus.split("train"), corpus.vocabulary)
        self.progress = Progress()
        self.sums = torch.zeros(len(Terms._fields), device=device, dtype=torch.float64)
        self.first_bad = torch.full((), -1, device=device)

    # one step

    def step(self, rows: IntArray, per_epoch: int) -> None:
        """One batch: the gradients of its parts, then the weights. Alone, nothing here waits for the device."""
        p, settings = self.progress, self.recipe.train
        self.model.train()
        self._set_rates(per_epoch)
        self.optimiser.zero_grad(set_to_none=True)
        for part in self.processes.own(self.parts):
            if self.parts > 1:
                seed_part(settings.seed, p.step, part)
            if len(own_rows := rows[part :: self.parts]):
                self.learn(own_rows, len(own_rows) / len(rows), per_epoch)
        learned = list(self.model.parameters())
        self.processes.add_gradients(learned)
        nn.utils.clip_grad_norm_(learned, settings.clip)
        self.optimiser.step()
        with torch.no_grad():
            if self.average:
                own: list[Tensor] = [parameter for _, parameter in self.model.named_parameters()]
                # Early on a young average forgets fast, so that it does not drag the first weights along.
                decay = min(settings.average, (p.step + 1) / (p.step + 10))
                torch._foreach_lerp_(list(self.average.values()), own, 1 - decay)
        p.step += 1
        p.step_in_epoch += 1
        p.stories += len(rows)

    def learn(self, rows: IntArray, share: float, per_epoch: int) -> None:
        """Terms, loss and gradients of one part, which is this share of its batch."""
        batch = self.train_stories.batch(rows)
        t = terms(self.model, batch, self.recipe.objective, half=self.half)
        loss = self.loss(t, per_epoch)
        (loss if share == 1 else loss * share).backward()
        with torch.no_grad():
            bad = (self.first_bad < 0) & ~torch.isfinite(loss.detach())
            self.first_bad = torch.where(bad, torch.full_like(self.first_bad, self.progress.step), self.first_bad)
            self.sums += torch.stack([value.detach().double().sum() for value in t])

    def loss(self, t: Terms, per_epoch: int) -> Tensor:
        """The negative objective per story, with the KL's target and warm-up."""
        o = self.recipe.objective
        rise = min(1.0, (self.progress.step + 1) / max(1.0, o.kl_warmup * per_epoch))
        weight = o.kl_weight * rise
        kl_Z = t.kl_Z.mean()
        if o.target_kl:
            kl_Z = kl_Z.clamp(min=o.target_kl)
        total = t.log_p_X.mean() - weight * (kl_Z + t.kl_S.mean()) + t.log_p_S.mean() + o.alpha * t.log_q_S.mean()
        model = self.model.latent
        if model is None:
            return -total
        if o.labelled_per_step:
            total = total + o.alpha * self.taught(model, o.labelled_per_step)
        if o.valence_penalty:
            total = total - o.valence_penalty * model.recognition.valence.free.weight.abs().sum()
        return -total

    def taught(self, model: SLDS, n: int) -> Tensor:
        """log q(S_i) of labelled stories drawn for this term alone, so that 1 % of labels is met at every step."""
        rng = np.random.default_rng([self.recipe.train.seed, 1, self.progress.step])
        batch = self.train_stories.batch(rng.choice(self.labelled, size=min(n, len(self.labelled)), replace=False))
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half):
            evidence = model.evidence(batch)
        return log_q_of(evidence, batch.S, model.open_states(batch.S)).mean()

    def _set_rates(self, per_epoch: int) -> None:
        s, p = self.recipe.train, self.progress
        scale = p.scale * min(1.0, (p.step + 1) / (s.warmup_steps + 1))
        if s.schedule == "cosine":
            scale *= 0.5 * (1 + math.cos(math.pi * min(1.0, p.step / (per_epoch * s.epochs))))
        for group in self.optimiser.param_groups:
            group["lr"] = group["full_rate"] * scale

    # looking, keeping, ending

    def look(self) -> None:
        """Bring the sums to the host, and stop if the loss has left the numbers, in any process."""
        self.first_bad = self.processes.largest(self.first_bad)
        if int(self.first_bad) >= 0:
            kept = f"the last good checkpoint is kept in {self.out}"
            if self.progress.best_epoch < 0:
                kept = "no epoch had ended, so nothing is kept"
            raise UserError(
                f"the loss became NaN or infinite at step {int(self.first_bad)}; {kept}: "
                "lower train.learning_rate or train.clip and train again"
            )
        for name, value in zip(Terms._fields, self.processes.total(self.sums).tolist(), strict=True):
            self.progress.sums[name] = self.progress.sums.get(name, 0.0) + value
        self.sums.zero_()

    def terms_per_story(self) -> dict[str, float]:
        p = self.progress
        return {name: round(value / max(p.stories, 1), 2) for name, value in p.sums.items() if value}

    def end_epoch(self, seconds: float, report: Callable[[dict[str, Any]], None] | None) -> None:
        """Validate, log, keep the best, slow down on a plateau, and write what a resumed run needs."""
        p, settings = self.progress, self.recipe.train
        kept = self.weights()
        figure, valid_terms = self.validate(kept) if self.processes.first else (0.0, {})
        figure = self.processes.figure(figure, self.device)
        if not math.isfinite(figure):
            raise UserError(f"the validation figure is {figure} after epoch {p.epoch + 1}; nothing was replaced")
        better = figure < p.best or settings.keep == "last"
        entry = {
            "epoch": p.epoch + 1,
            "step": p.step,
            "train": {name: value / p.stories for name, value in p.sums.items()},
            "valid": valid_terms,
            "valid_nll": figure,
            "best": better,
            "rate": p.scale,
            "seconds": round(seconds, 3),
            "stories_per_second": round(p.stories / seconds, 1),
        }
        if better:
            p.best, p.best_epoch, p.bad_epochs = figure, p.epoch, 0
            if self.processes.first:
                save(self.out, self.checkpoint(), weights=kept)
        else:
            p.bad_epochs += 1
            if settings.schedule == "plateau":
                p.scale *= settings.decay
        p.epoch, p.step_in_epoch, p.stories, p.sums = p.epoch + 1, 0, 0, {}
        if self.processes.first:
            self.log([*read_log(self.out), entry])
        self.keep()
        if report and self.processes.first:
            report(entry)

    def log(self, entries: list[dict[str, Any]]) -> None:
        """Write the log whole, so that a full disk or a kill leaves no half line."""
        write_file(self.out / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in entries).encode())

    def patience_is_out(self) -> bool:
        return self.progress.bad_epochs >= self.recipe.train.patience

    def weights(self) -> dict[str, Tensor]:
        """The weights that are judged and kept: the running average where the recipe asks for one."""
        own = dict(self.model.state_dict())
        merged = {**own, **self.average}
        return {name: merged[owner] for name, owner in owners(own).items()}

    @torch.no_grad()
    def validate(self, weights: dict[str, Tensor]) -> tuple[float, dict[str, float]]:
        """Negative bound per story on the validation split, S summed out: the same figure for every objective."""
        own = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        self.model.load_state_dict(weights)
        self.model.eval()
        generator = torch.Generator(self.device).manual_seed(0)
        honest = ObjectiveSettings(kind="collapsed", clamp_tags=False, posterior=self.recipe.objective.posterior)
        sums: dict[str, float] = {}
        total = 0.0
        for rows in self.valid_stories.in_order(256):
            batch = self.valid_stories.batch(rows)
            t = terms(self.model, batch, honest, generator=generator, half=self.half, law=self.recipe.objective.law)
            total -= float(t.bound().sum())
            for name, value in t._asdict().items():
                sums[name] = sums.get(name, 0.0) + float(value.sum())
        self.model.load_state_dict(own)
        n = len(self.valid_stories)
        return total / n, {name: value / n for name, value in sums.items()}

    def checkpoint(self) -> Checkpoint:
        figures = {"valid_nll": self.progress.best, "epoch": self.progress.best_epoch + 1}
        figures["sentences"] = round(float(np.diff(self.corpus.split("train").story_offsets).mean()), 1)
        return Checkpoint(
            model=self.model,
            vocabulary=self.corpus.vocabulary,
            labels=tuple(self.corpus.labels),
            tagger=self.corpus.tagger,
            recipe=self.recipe.to_dict(),
            corpus_hash=self.corpus.hash,
            figures=figures,
            people=self.people,
            factors=self.corpus.states.factors,
        )

    def keep(self) -> None:
        """Write what a resumed run needs, whole or not at all."""
        self.look()
        if self.processes.first:
            write_state(self.out, self.progress, self.recipe, self.corpus.hash, self.tensors())

    def tensors(self) -> dict[str, Tensor]:
        """Weights, averages, moments and the state of the random numbers."""
        tensors = {f"model.{n}": t.clone() for n, t in self.model.state_dict().items()}
        tensors |= {f"average.{n}": t for n, t in self.average.items()}
        for index, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{n}": t for n, t in moments.items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        return tensors

    def restore(self) -> None:
        """Continue where `keep` left off."""
        self.progress, tensors = read_state(self.out, self.recipe, self.corpus.hash)
        # A run that was killed between its log and its state has logged an epoch that will now be run again.
        if self.processes.first:
            self.log([entry for entry in read_log(self.out) if entry["epoch"] <= self.progress.epoch])
        self.model.load_state_dict(under(tensors, "model."))
        for name, tensor in under(tensors, "average.").items():
            self.average[name].copy_(tensor)
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in under(tensors, "adam.").items():
            index, kind = name.split(".", 1)
            state.setdefault(int(index), {})[kind] = tensor
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": state, "param_groups": groups})
        torch.set_rng_state(tensors["random.cpu"])
        if self.device.type == "cuda" and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)

    def finish(self) -> None:
        """Put the best weights into the model; where tags come from words alone, fit q(S | X) to the labels."""
        self.processes.wait()
        if self.progress.best_epoch >= 0:
            self.model.load_state_dict(load(self.out, self.device).model.state_dict())
        self.model.eval()
        model = self.model.latent
        if model is not None and self.recipe.model.recognition.tags == "words":
            words, seed = self.corpus.vocabulary.words, self.recipe.train.seed
            settle_tags(model, self.train_stories, self.labelled, words, seed)
            self.processes.wait()  # until all have read what is now replaced
            if self.processes.first:
                save(self.out, self.checkpoint())


def labelled_rows(n: int, objective: ObjectiveSettings) -> IntArray:
    """Which stories keep their tags: a share drawn by a seed, at least one unless the share is zero."""
    if objective.labelled >= 1:
        return np.arange(n)
    count = max(1, round(n * objective.labelled)) if objective.labelled else 0
    return np.sort(np.random.default_rng(objective.label_seed).permutation(n)[:count])


def hide_tags(dataset: StoryDataset, labelled: IntArray) -> None:
    """Forget the tags of every story that is not labelled."""
    seen = np.zeros(len(dataset), dtype=bool)
    seen[labelled] = True
    of_sentence = torch.from_numpy(np.repeat(seen, dataset.sentences)).to(dataset.device)
    dataset.tags[:-1] = torch.where(of_sentence, dataset.tags[:-1], torch.full_like(dataset.tags[:-1], UNKNOWN))


def hide_factors(dataset: StoryDataset, recipe: Recipe) -> None:
    """Forget the values of single factors: of each, in all stories but the share that the objective names."""
    objective, sizes = recipe.objective, recipe.model.dynamics.sizes
    if not objective.factor_shares:
        return
    shares = [float(share) for share in objective.factor_shares.split(",")]
    if len(shares) != len(sizes):
        raise UserError(
            "objective.factor_shares needs a share for each of model.dynamics.factors", field="factor_shares"
        )
    space = StateSpace(tuple(Factor(str(f), tuple(map(str, range(n)))) for f, n in enumerate(sizes)))
    values, rng = space.decode(dataset.tags[:-1].cpu().numpy()), np.random.default_rng([objective.label_seed, 1])
    for f, share in enumerate(shares):
        seen = np.zeros(len(dataset), dtype=bool)
        seen[rng.permutation(len(dataset))[: round(share * len(dataset))]] = True
        values[~np.repeat(seen, dataset.sentences), f] = UNKNOWN
    dataset.tags[:-1] = torch.from_numpy(space.number(values)).to(dataset.device)


def parameter_groups(model: Model, recipe: Recipe) -> list[dict[str, Any]]:
    """The networks at one rate, A, bias and B at another."""
    slow = {id(p) for p in model.latent.dynamics.parameters()} if model.latent is not None else set()
    networks = [p for p in model.parameters() if id(p) not in slow]
    groups = [{"params": networks, "full_rate": recipe.train.learning_rate}]
    if slow:
        dynamics = [p for p in model.parameters() if id(p) in slow]
        rate = recipe.train.learning_rate_dynamics
        groups.append({"params": dynamics, "full_rate": rate, "weight_decay": 0.0})
    return cast(list[dict[str, Any]], groups)
