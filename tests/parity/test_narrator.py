"""The narrator's decoder: one function whatever the road (whole, by steps, batched, branched, through the window)."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fabula.corpus.states import Factor, StateSpace
from fabula.models.decoders.adapter import Adapter, AdapterConfig
from fabula.models.decoders.bases import FOLDER_NAMES, Base, read_base
from fabula.models.decoders.fuse import fuse
from fabula.models.decoders.narrator import NarratorDecoder, NarratorState
from fabula.models.decoders.network import Network
from fabula.models.decoders.protocol import Given
from fabula.models.decoders.rows import BOS, END, FIRST_MOOD, FREE, SPECIALS, header, row
from fabula.models.decoders.transformer import Transformer
from fabula.models.narrator import NarratorModel
from fabula.sampling.batch import infill_batch
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.tags import tags_to_write
from fabula.statespace.markov import MarkovChain
from gguf_writer import HEADS, INNER, KEY_HEADS, LAYERS, WIDTH, write_tiny_base

RANK, SCALE = 4, 2.0
STORY = ["Tom was sad.", "He saw the sea and a hat!", "It was his.", "Tom ran.", "The end was near the sea."]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return read_base(write_tiny_base(tmp_path_factory.mktemp("base") / "tiny.gguf"))


def random_network(base: Base, seed: int, further: int = 0) -> Transformer:
    """The training network with an adapter that is far from nothing."""
    torch.manual_seed(seed)
    network = Transformer(base.tensors, base.sizes, RANK, SCALE, SPECIALS, further=further)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.2 if name.endswith((".a", ".b")) else 0.5))
    return network.requires_grad_(False)


@pytest.fixture(scope="module")
def trained(base: Base) -> Transformer:
    return random_network(base, 1)


def decoder_of(base: Base, trained: Transformer, eight_bit: bool = False) -> NarratorDecoder:
    config = AdapterConfig(base_sha256="", rank=RANK, scale=SCALE, labels=("bad", "good"), tagger="none")
    merged = Adapter(config, dict(trained.named_parameters())).merge(base.tensors)
    weights = dict(fuse(merged, trained.sizes, eight_bit=eight_bit))
    return NarratorDecoder(Network(trained.sizes, weights), base.tokenizer)


@pytest.fixture(scope="module")
def decoder(base: Base, trained: Transformer) -> NarratorDecoder:
    return decoder_of(base, trained)


def padded(sentences: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Sentences with their `end`, side by side; an empty one has length 0."""
    lengths = torch.tensor([len(s) + 1 if s else 0 for s in sentences])
    tokens = torch.zeros(len(sentences), max(1, int(lengths.max())), dtype=torch.int64)
    for r, sentence in enumerate(sentences):
        if sentence:
            tokens[r, : len(sentence) + 1] = torch.tensor([*sentence, END])
    return tokens, lengths


def tell(decoder: NarratorDecoder, state: NarratorState, story: list[list[int]], s: list[int]) -> tuple[Any, Tensor]:
    """One story read to its end: log p of each sentence."""
    found = []
    for sentence, tag in zip(story, s, strict=True):
        state = decoder.begin_sentence(state, torch.tensor([tag]))
        state, log_p = decoder.read(state, *padded([sentence]))
        found.append(log_p[0])
    return state, torch.stack(found)


def reference(trained: Transformer, ids: list[int], counted: list[int]) -> Tensor:
    """-log p of the counted tokens by the training network, over tokens of text and END."""
    logits = trained.logits(trained(torch.tensor([ids])))[0, :-1]
    never = torch.arange(logits.shape[-1]) < SPECIALS
    never[END] = False
    target = torch.tensor(ids[1:]).clamp(max=logits.shape[-1] - 1)  # tokens of further factors are never counted
    loss = F.cross_entropy(logits.masked_fill(never, float("-inf")), target, reduction="none")
    return (loss.nan_to_num(posinf=0) * torch.tensor(counted[1:])).sum()


def given_of(stories: list[list[list[int]]], missing: list[set[int]]) -> Given:
    pairs = zip(stories, missing, strict=True)
    batch = infill_batch([[None if j in gaps else x for j, x in enumerate(story)] for story, gaps in pairs], end=END)
    return Given(batch.X, batch.lengths, batch.present, batch.missing)


@pytest.fixture(scope="module")
def story(decoder: NarratorDecoder) -> list[list[int]]:
    return [decoder.tokenizer.encode(sentence) for sentence in STORY]


@pytest.mark.system
def test_the_network_is_transformers_llama(base: Base) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = base.sizes
    config = transformers.LlamaConfig(
        vocab_size=sizes.vocabulary, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, rms_norm_eps=sizes.epsilon, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0}, rope_theta=1000.0,
    )  # fmt: skip
    theirs = transformers.LlamaForCausalLM(config).eval()
    state = {
        "model.embed_tokens.weight": base.tensors["token_embd.weight"],
        "model.norm.weight": base.tensors["output_norm.weight"],
    }
    for layer in range(LAYERS):
        for ours, other in FOLDER_NAMES.items():
            weight = base.tensors[f"blk.{layer}.{ours}.weight"]
            if ours in ("attn_q", "attn_k"):  # GGUF has rotary pairs as neighbours, transformers as halves
                heads = HEADS if ours == "attn_q" else KEY_HEADS
                weight = weight.view(heads, -1, 2, WIDTH).transpose(1, 2).reshape(-1, WIDTH)
            state[f"model.layers.{layer}.{other}.weight"] = weight
    theirs.load_state_dict(state | {"lm_head.weight": state["model.embed_tokens.weight"]})
    ids = torch.randint(0, sizes.vocabulary, (2, 30), generator=torch.Generator().manual_seed(0))
    plain = Transformer(base.tensors, sizes, 1, 1.0, SPECIALS)
    with torch.no_grad():
        torch.testing.assert_close(plain.logits(plain(ids)), theirs(input_ids=ids).logits, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("missing", [None, {1, 2, 3}, {0, 4}, {4}])
def test_reading_scores_what_the_training_network_scores(
    decoder: NarratorDecoder, trained: Transformer, story: list[list[int]], missing: set[int] | None
) -> None:
    s = [-1, 0, 1, -1, 1]
    moods = [FREE if tag < 0 else FIRST_MOOD + tag for tag in s]
    expected = reference(trained, *row(story, moods, missing, range(5)))
    start = decoder.start(1, None, given_of([story], [missing]) if missing else None)
    _, log_p = tell(decoder, start, story, s)
    torch.testing.assert_close(-log_p.sum(), expected, atol=1e-3, rtol=1e-4)


def test_tokens_of_further_factors_are_read_as_the_training_network_reads_them(base: Base) -> None:
    """Rows of different numbers of tags, side by side: StateSpace.number, decoder and row agree."""
    states = StateSpace((Factor("mood", ("bad", "good")), Factor("who", ("he", "she", "it")), Factor("at", ("a", "b"))))
    network = random_network(base, 2, further=5)
    config = AdapterConfig(
        base_sha256="", rank=RANK, scale=SCALE, labels=("bad", "good"), tagger="x,y,z", factors=states.factors
    )
    adapter = Adapter(config, dict(network.named_parameters()))
    adapter.check(network.sizes)
    weights = dict(fuse(adapter.merge(base.tensors), network.sizes, eight_bit=False))
    tokenizer = base.tokenizer
    tags = config.tokens(network.sizes.vocabulary)
    decoder = NarratorDecoder(Network(network.sizes, weights), tokenizer, tags)
    story = [tokenizer.encode(sentence) for sentence in STORY[:3]]
    arcs = [[(-1, 2, -1), (1, 0, 1), (-1, -1, -1)], [(0, -1, -1), (-1, -1, 1), (1, 1, -1)]]
    state, total = decoder.start(2), torch.zeros(2)
    for i, sentence in enumerate(story):
        numbers = torch.from_numpy(states.number([arc[i] for arc in arcs]))
        assert states.values(numbers.numpy()).tolist() == [list(arc[i]) for arc in arcs]
        state, log_p = decoder.read(decoder.begin_sentence(state, numbers), *padded([sentence] * 2))
        total += log_p
    for r, arc in enumerate(arcs):
        ids = [tags.of(values) for values in arc]
        told = row(story, [each[0] for each in ids], None, range(3), [each[1:] for each in ids])
        torch.testing.assert_close(-total[r], reference(network, *told), atol=1e-3, rtol=1e-4)
    # An arc that fixes some factors is written under just those: nothing is drawn for the others.
    model = NarratorModel(decoder, MarkovChain(torch.full((12,), 1 / 12), torch.full((12, 12), 1 / 12)))
    allowed = torch.from_numpy(states.allowed(arcs[0]))
    blanks = infill_batch([[story[0], None, None]], [allowed], end=END)
    S = tags_to_write(model, blanks, Noise([seeded(0)], [3], 4, blanks.device))
    assert states.values(S.numpy()).tolist() == [[list(values) for values in arcs[0]]] * 4
    assert tags.of((-1, -1, -1)) == [FREE]
    assert tags.of((1, -1, 1)) == [FIRST_MOOD + 1, network.sizes.vocabulary + 4]


def test_steps_score_what_reading_scores(decoder: NarratorDecoder, story: list[list[int]]) -> None:
    state, log_p = decoder.start(1), torch.zeros(())
    going = torch.zeros(1, dtype=torch.bool)
    for sentence, tag in zip(story[:3], [1, -1, 0], strict=True):
        state = decoder.begin_sentence(state, torch.tensor([tag]))
        for token in [*sentence, END]:
            scores, state = decoder.step(state, None, going)
            log_p = log_p + scores[0].log_softmax(-1)[token]
            state = state.then(torch.tensor([token]))
    _, read = tell(decoder, decoder.start(1), story[:3], [1, -1, 0])
    torch.testing.assert_close(log_p, read.sum(), atol=1e-3, rtol=1e-4)
    assert not torch.isfinite(scores[0, [BOS, FREE, FIRST_MOOD]]).any()


@pytest.mark.parametrize("eight_bit", [False, True])
def test_rows_do_not_know_of_each_other(
    base: Base, trained: Transformer, story: list[list[int]], eight_bit: bool
) -> None:
    """Ragged rows, absent sentences, headers of different lengths: as one by one."""
    decoder = decoder_of(base, trained, eight_bit)
    stories = [story, story[2:], [story[4], story[0]]]
    tags = [[-1, 0, 1, -1, 1], [1, 1, 0], [0, -1]]
    given = given_of(stories, [{1, 2}, {2}, {0, 1}])
    state, total = decoder.start(3, None, given), torch.zeros(3)
    for i in range(5):
        state = decoder.begin_sentence(state, torch.tensor([t[i] if i < len(t) else -1 for t in tags]))
        state, log_p = decoder.read(state, *padded([x[i] if i < len(x) else [] for x in stories]))
        total += log_p
        assert (log_p != 0).tolist() == [i < len(x) for x in stories]
    for r in range(3):
        alone = decoder.start(1, None, Given(*(t[r : r + 1, : len(stories[r])] for t in given)))
        torch.testing.assert_close(total[r], tell(decoder, alone, stories[r], tags[r])[1].sum(), atol=1e-3, rtol=1e-4)


def test_finished_rows_stay_where_they_are(decoder: NarratorDecoder, story: list[list[int]]) -> None:
    state = decoder.begin_sentence(decoder.start(2), torch.tensor([0, 1]))
    _, state = decoder.step(state, None, torch.tensor([False, False]))
    after = state.then(torch.tensor([story[0][0], END]))
    mixed, later = decoder.step(after, None, torch.tensor([False, True]))
    assert later.lengths.tolist() == [3, 2]
    torch.testing.assert_close(
        mixed[0], decoder.step(after, None, torch.tensor([False, False]))[0][0], atol=1e-4, rtol=1e-4
    )
    nothing, same = decoder.step(later, None, torch.tensor([True, True]))
    assert not nothing.any()
    assert same is later
    # Each row goes on as if it were alone.
    state, log_p = decoder.read(
        decoder.begin_sentence(later.then(torch.tensor([END, END])), None), *padded([story[1]] * 2)
    )
    for r, words in enumerate([story[0][:1], []]):
        alone = decoder.begin_sentence(decoder.start(1), torch.tensor([r]))
        alone, _ = decoder.read(alone, torch.tensor([[*words, END]]), torch.tensor([len(words) + 1]))
        expected = decoder.read(decoder.begin_sentence(alone, None), *padded([story[1]]))[1]
        torch.testing.assert_close(log_p[r : r + 1], expected, atol=1e-3, rtol=1e-4)


def test_a_state_is_a_value_that_may_be_continued_twice(decoder: NarratorDecoder, story: list[list[int]]) -> None:
    start, _ = tell(decoder, decoder.start(1), story[:1], [0])
    once = tell(decoder, start, story[1:3], [1, 1])[1]
    tell(decoder, start, story[3:5], [0, 0])
    middle, _ = tell(decoder, start, story[1:2], [1])
    tell(decoder, start, story[3:5], [0, 0])
    torch.testing.assert_close(tell(decoder, middle, story[2:3], [1])[1], once[1:], atol=1e-4, rtol=1e-4)


def test_rows_can_be_selected_copied_replaced_and_joined(decoder: NarratorDecoder, story: list[list[int]]) -> None:
    a, _ = tell(decoder, decoder.start(1), story[:1], [0])
    b, _ = tell(decoder, decoder.start(1), story[1:3], [1, -1])

    def next_log_p(state: NarratorState) -> Tensor:
        state = decoder.begin_sentence(state, None)
        return decoder.read(state, *padded([story[4]] * len(state.lengths)))[1]

    p_a, p_b = next_log_p(a), next_log_p(b)
    assert abs(p_a - p_b) > 0.01
    both = a.join(b)
    torch.testing.assert_close(next_log_p(both), torch.cat([p_a, p_b]), atol=1e-4, rtol=1e-4)
    many = both.select(torch.tensor([1, 0, 1, 1]))
    torch.testing.assert_close(next_log_p(many), torch.cat([p_b, p_a, p_b, p_b]), atol=1e-4, rtol=1e-4)
    changed = many.put(torch.tensor([2, 0]), both.select(torch.tensor([0, 1])))
    torch.testing.assert_close(next_log_p(changed), torch.cat([p_b, p_a, p_a, p_b]), atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="knows the lines ahead"):
        a.join(decoder.start(1, None, given_of([story], [{1}])))


@pytest.mark.parametrize("eight_bit", [False, True])
def test_rows_that_share_a_prompt_tell_what_they_would_tell_alone(
    base: Base, trained: Transformer, story: list[list[int]], eight_bit: bool
) -> None:
    """Two stories with prompts of different lengths, three rows each: read on, cut short, resampled, mixed."""
    decoder = decoder_of(base, trained, eight_bit)
    given = given_of([story, story[2:]], [{1, 2}, {2}])
    state = decoder.start(2, None, given).select(torch.tensor([0, 0, 0, 1, 1, 1]))

    def onward(state: NarratorState, told: list[Any], number: int) -> NarratorState:
        """All rows read a sentence of their own; its log p is that of each story alone."""
        sentences = [story[(r + number) % 5] for r in range(len(told))]
        state, log_p = decoder.read(decoder.begin_sentence(state, None), *padded(sentences))
        for r, (which, before) in enumerate(told):
            alone = decoder.start(1, None, Given(*(t[which : which + 1] for t in given)))
            alone, expected = tell(decoder, alone, [*before, sentences[r]], [-1] * (len(before) + 1))
            torch.testing.assert_close(log_p[r], expected[-1], atol=1e-3, rtol=1e-4)
            before.append(sentences[r])
        return state

    told: list[Any] = [(r // 3, []) for r in range(6)]
    state = onward(state, told, 1)
    assert state.cache.prefix is not None
    assert state.cache.prefix.ragged
    for rows in ([0, 0, 2, 3, 5, 5], [1, 4], [1, 0, 0, 1, 1, 0]):  # within stories, some left out, mixed
        state, told = state.select(torch.tensor(rows)), [(told[r][0], list(told[r][1])) for r in rows]
        state = onward(state, told, 2)


def test_eight_sentences_are_read_whole_and_longer_stories_through_a_window(
    decoder: NarratorDecoder, trained: Transformer, story: list[list[int]]
) -> None:
    rng = random.Random(0)
    long = [rng.choice(story) for _ in range(11)]
    s = [rng.choice([-1, 0, 1]) for _ in long]
    moods = [FREE if tag < 0 else FIRST_MOOD + tag for tag in s]
    _, log_p = tell(decoder, decoder.start(1), long, s)
    torch.testing.assert_close(
        -log_p[:8].sum(), reference(trained, *row(long[:8], moods, None, range(8))), atol=2e-3, rtol=1e-4
    )
    window = reference(trained, *row(long[4:], moods[4:], None, range(4, 7)))  # sentences 9 to 11 after 5 to 8
    torch.testing.assert_close(-log_p[8:].sum(), window, atol=2e-3, rtol=1e-4)


def test_the_window_moves_the_header_along(
    decoder: NarratorDecoder, trained: Transformer, story: list[list[int]]
) -> None:
    long = [story[i % 5] for i in range(14)]
    missing = {2, 9, 12}
    state = decoder.start(2, None, given_of([long, long[:3]], [missing, {1}]))
    total = torch.zeros(2)
    for i in range(9):
        state = decoder.begin_sentence(state, torch.tensor([-1, -1]))
        state, log_p = decoder.read(state, *padded([long[i], long[i] if i < 3 else []]))
        total += log_p * (i >= 8)
    ahead = header([None if j in missing else long[j] for j in range(4, 12)])
    ids, counted = list(ahead), [0] * len(ahead)
    for i in range(4, 9):
        ids += [FREE, *long[i], END]
        counted += [0] + [int(i == 8)] * (len(long[i]) + 1)
    torch.testing.assert_close(-total[0], reference(trained, ids, counted), atol=2e-3, rtol=1e-4)
    assert [decoder.reads_until(i) for i in (0, 7, 8, 11, 12)] == [8, 8, 12, 12, 16]
