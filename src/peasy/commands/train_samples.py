"""Samples of a training run: prompts continued during training, and the sentence whose attention is tracked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from peasy.datasets import LabelledText, Sample, TextPair

if TYPE_CHECKING:
    from peasy.models.protocol import Model
    from peasy.training.attention_snapshots import TrackedSentence
    from peasy.training.event import Sampled
    from peasy.training.loop import SampleFn
    from peasy.training.setup import RunSetup


def make_sampler(setup: "RunSetup", examples: Sequence[Sample]) -> "SampleFn | None":
    """Return a function that samples from the model: continues prompts, or translates the first validation sources."""
    from peasy.generation.decode import generate
    from peasy.generation.sampling_params import SamplingParams
    from peasy.training.event import Sampled

    recipe, tokenizer = setup.recipe, setup.tokenizer
    translates = recipe.model_kind in ("translator", "rnn-translator")
    prompts = recipe.prompts or tuple(_make_prompt(sample) for sample in examples)
    ids = [list(tokenizer.encode(prompt).ids) for prompt in prompts]
    if recipe.model_kind in ("encoder", "words") or not all(ids) or not ids:
        return None
    sampling = SamplingParams(max_tokens=48, temperature=0.0 if translates else 0.8, seed=recipe.seed)

    def sample(model: "Model", step: int) -> "Sampled":
        prompt_ids, source_ids = (None, ids) if translates else (ids, None)
        sequences = generate(model, prompt_ids, sampling, source=source_ids)
        texts = map((setup.target_tokenizer or tokenizer).decode, sequences)
        return Sampled(step, prompts, tuple(texts), tuple(map(tuple, sequences)))

    return sample


def _make_prompt(sample: Sample) -> str:
    return _text(sample) if isinstance(sample, TextPair) else " ".join(_text(sample).split(" ")[:3])[:60]


def _text(sample: Sample) -> str:
    return (
        sample.source if isinstance(sample, TextPair) else sample.text if isinstance(sample, LabelledText) else sample
    )


def tracked_sentence(setup: "RunSetup", model: "Model", examples: Sequence[Sample]) -> "TrackedSentence | None":
    """Choose the sentence of the attention snapshots: the recipe's, else the first validation sentence."""
    from peasy.training.attention_snapshots import TrackedSentence

    recipe, tokenizer = setup.recipe, setup.tokenizer
    first = examples[0] if examples else recipe.tracked_sentence
    if recipe.model_kind not in ("gpt", "encoder", "translator", "rnn-translator") or first is None:
        return None
    if not model.is_encoder_decoder:
        text = recipe.tracked_sentence or _text(first)
        encoding = tokenizer.encode(text)
        return TrackedSentence(encoding.ids[:32], encoding.pieces[:32]) if encoding.ids else None
    if not isinstance(first, TextPair):
        return None
    target_tokenizer = setup.target_tokenizer or tokenizer
    source = tokenizer.encode(recipe.tracked_sentence or first.source)
    target = target_tokenizer.encode(first.target, add_special_tokens=False)
    start = model.config.special_tokens.decoder_start
    ids, pieces = ((), ()) if start is None else ((start,), (target_tokenizer.piece(start),))
    return TrackedSentence(
        (*ids, *target.ids[:31]), (*pieces, *target.pieces[:31]), source.ids[:32], source.pieces[:32]
    )
