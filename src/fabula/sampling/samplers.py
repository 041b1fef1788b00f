"""Fabula's own samplers as the registry knows them: each hands its settings to the file that does the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from fabula.sampling.protocol import register_sampler
from fabula.sampling.settings import BridgeFillSettings, FillSettings, GibbsFillSettings, RerankFillSettings

if TYPE_CHECKING:
    import torch

    from fabula.models.protocol import Model
    from fabula.sampling.batch import InfillBatch
    from fabula.sampling.cast import Cast
    from fabula.sampling.decode import DecodingConfig
    from fabula.sampling.rules import WordRules
    from fabula.sampling.samples import Diagnostics, SampledStories

    Rounds = Iterator[tuple[SampledStories, Diagnostics | None]]


def decoding_of(settings: FillSettings, top_k: int = 15, no_repeat: int = 0) -> DecodingConfig:
    """How words are chosen: as the settings say, among `top_k` of them where they do not."""
    from fabula.sampling.decode import DecodingConfig

    return DecodingConfig(
        top_k=top_k if settings.top_k is None else settings.top_k, temperature=settings.temperature,
        max_words=settings.max_words, no_repeat=no_repeat, bf16=settings.bf16,
    )  # fmt: skip


class Bridge:
    """`smc.py`."""

    name, about, settings = "bridge", "looks ahead first", BridgeFillSettings
    runs_on: Literal["looks ahead"] = "looks ahead"

    def run(
        self, model: Model, batch: InfillBatch, settings: BridgeFillSettings, generators: Sequence[torch.Generator], *,
        rules: WordRules, cast: Cast | None = None, gold: InfillBatch | None = None,
    ) -> Rounds:  # fmt: skip
        from fabula.sampling import smc

        chosen = smc.BridgeSettings(
            particles=settings.samples, decoding=decoding_of(settings, no_repeat=settings.no_repeat),
            tags=settings.tags, fluency=settings.fluency, twist_weight=settings.twist_weight,
            context=settings.context, agreement=settings.agreement, z_observes=settings.z_observes, rank=settings.rank,
            guide=settings.guide, arc_weight=settings.arc_weight, at_once=settings.at_once,
        )  # fmt: skip
        if cast is not None and not settings.allow_new_names:
            batch = cast.without_new_names(batch)
        return smc.run(model, rules, batch, chosen, list(generators), gold, cast)


class Gibbs:
    """`gibbs.py`."""

    name, about, settings = "gibbs", "the paper's", GibbsFillSettings
    runs_on: Literal["latent"] = "latent"

    def run(
        self, model: Model, batch: InfillBatch, settings: GibbsFillSettings, generators: Sequence[torch.Generator], *,
        rules: WordRules, cast: Cast | None = None, gold: InfillBatch | None = None,
    ) -> Rounds:  # fmt: skip
        from fabula.sampling import gibbs

        decoding = decoding_of(settings, top_k=1 if settings.x_step == "greedy" else 15)
        assert model.latent is not None
        chains, left = settings.rows, settings.samples
        chosen = gibbs.GibbsSettings(
            chains=chains, sweeps=-(-settings.samples // chains), x_step=settings.x_step, decoding=decoding,
            score=settings.score, tags=settings.tags,
        )  # fmt: skip
        for stories, diagnostics in gibbs.run(model.latent, rules, batch, chosen, list(generators), gold):
            # The last sweep may hold more than the samples that were asked for.
            yield stories.first_chains(chains, min(left, chains)), diagnostics
            left -= chains


class Rerank:
    """`rerank.py`."""

    name, about, settings = "rerank", "models without latents", RerankFillSettings
    runs_on: Literal["no latent"] = "no latent"

    def run(
        self, model: Model, batch: InfillBatch, settings: RerankFillSettings, generators: Sequence[torch.Generator], *,
        rules: WordRules, cast: Cast | None = None, gold: InfillBatch | None = None,
    ) -> Rounds:  # fmt: skip
        from fabula.sampling import rerank

        if cast is not None and not settings.allow_new_names:
            batch = cast.without_new_names(batch)
        decoding = decoding_of(settings, no_repeat=settings.no_repeat)
        return rerank.run(model, rules, batch, settings.samples, decoding, list(generators))


for sampler in (Bridge(), Gibbs(), Rerank()):
    register_sampler(sampler)
