"""Packed batches: sequences of any lengths in one pass, each with its own decoding state."""

from typing import Any

import pytest
import torch
from tests.models.tiny_models import DECODERS, GENERATIVE_MODELS, TRANSLATORS, make, some_ids

from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset, presets
from peasy.models.protocol import Model
from peasy.nn import kv_cache
from peasy.nn.attention import Attention
from peasy.nn.tap import KNOWN_STEPS, Activation, Tap

TRANSFORMER_GENERATORS = DECODERS | TRANSLATORS
TEXTS = [[1, 2, 3, 4, 5, 6, 7], [7], [3, 1, 4], [9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4]]
KINDS = {type(config).kind for config in GENERATIVE_MODELS.values()}
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(params=GENERATIVE_MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return make(GENERATIVE_MODELS[request.param], double=True).eval()


def source_of(model: Model, text: int) -> dict[str, torch.Tensor]:
    """Return a source of another length for each sequence."""
    return {"source": some_ids(1, 5 + 2 * text, seed=text)} if model.is_encoder_decoder else {}


def new_states(model: Model) -> list[Any]:
    return [model.new_state(**source_of(model, text)) for text in range(len(TEXTS))]


def full_pass(model: Model, text: int) -> torch.Tensor:
    return model(torch.tensor([TEXTS[text]]), **source_of(model, text))[0]


@torch.inference_mode()
def run_in_chunks(model: Model, chunks: list[list[int]]) -> list[torch.Tensor]:
    """Return the logits after every token of every sequence; `chunks[turn][text]` new tokens are run at each turn."""
    states, done = new_states(model), [0] * len(TEXTS)
    actual: list[list[torch.Tensor]] = [[] for _ in TEXTS]
    for sizes in chunks:
        active = [text for text, size in enumerate(sizes) if size and done[text] < len(TEXTS[text])]
        new = [TEXTS[text][done[text] : done[text] + sizes[text]] for text in active]
        for text, logits in zip(
            active, model.forward_varlen(new, [states[text] for text in active], all_positions=True), strict=True
        ):
            actual[text].append(logits)
            done[text] += len(logits)
    assert done == [len(text) for text in TEXTS] == [state.length for state in states]
    return [torch.cat(logits) for logits in actual]


TOKEN_BY_TOKEN = [[1] * 4] * 11
CHUNKS = [[3, 1, 2, 5], [2, 0, 1, 1], [0, 0, 0, 1], [2, 0, 0, 4]]


@pytest.mark.parametrize("chunks", [TOKEN_BY_TOKEN, CHUNKS, [[11] * 4]])
@torch.inference_mode()
def test_packed_batch_equals_single_sequences(model: Model, chunks: list[list[int]]) -> None:
    for text, logits in enumerate(run_in_chunks(model, chunks)):
        torch.testing.assert_close(logits, full_pass(model, text), **CLOSE)


@torch.inference_mode()
def test_last_logits_equal_the_last_of_all(model: Model) -> None:
    every = model.forward_varlen(TEXTS, new_states(model), all_positions=True)
    last = model.forward_varlen(TEXTS, new_states(model))
    for logits, final in zip(every, last, strict=True):
        assert final.shape == (logits.shape[-1],)
        torch.testing.assert_close(final, logits[-1], **CLOSE)


@pytest.mark.parametrize("name", TRANSFORMER_GENERATORS)
@torch.inference_mode()
def test_packed_batch_equals_padded_batch(name: str) -> None:
    model = make(TRANSFORMER_GENERATORS[name], double=True)
    longest = max(map(len, TEXTS))
    ids = torch.tensor([[0] * (longest - len(text)) + text for text in TEXTS])
    mask = torch.tensor([[False] * (longest - len(text)) + [True] * len(text) for text in TEXTS])
    source = {"source": some_ids(1, 9)} if model.is_encoder_decoder else {}
    batch = {key: value.expand(len(TEXTS), -1) for key, value in source.items()}
    padded = model(ids, padding_mask=mask, last_only=True, **batch)[:, -1]
    actual = model.forward_varlen(TEXTS, [model.new_state(**source) for _ in TEXTS])
    torch.testing.assert_close(torch.stack(actual), padded, **CLOSE)


@pytest.mark.parametrize("name", ["window", "windowed-layers", "learned", "relative"])
def test_windows_and_capacities_are_independent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_cache, "BLOCK_TOKENS", 4)
    model = make(DECODERS[name], double=True)
    for text, logits in enumerate(run_in_chunks(model, TOKEN_BY_TOKEN)):
        torch.testing.assert_close(logits, full_pass(model, text), **CLOSE)


GENERATIVE_PRESETS = [p.name for p in presets() if p.name.endswith("-tiny") and p.config.kind in KINDS]


@pytest.mark.parametrize("name", GENERATIVE_PRESETS)
@torch.inference_mode()
def test_presets_that_generate(name: str) -> None:
    model = build(preset(name), seed=1).eval()
    texts = [[1, 2, 3], [4]]
    sources = [{"source": torch.tensor([text])} if model.is_encoder_decoder else {} for text in ([4, 5, 6], [7, 8])]
    actual = model.forward_varlen(texts, [model.new_state(**source) for source in sources])
    for ids, source, logits in zip(texts, sources, actual, strict=True):
        torch.testing.assert_close(logits, model(torch.tensor([ids]), **source)[0, -1], rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_forked_state_is_independent(model: Model) -> None:
    state = model.new_state(**source_of(model, 0))
    model.forward_varlen([[1, 2]], [state])
    other = state.fork()
    model.forward_varlen([[9]], [other])
    expected = model(torch.tensor([[1, 2, 3]]), **source_of(model, 0))[0, -1]
    torch.testing.assert_close(model.forward_varlen([[3]], [state])[0], expected, **CLOSE)
    assert (state.length, other.length) == (3, 3)


@pytest.mark.parametrize("name", TRANSFORMER_GENERATORS)
@torch.inference_mode()
def test_one_tap_per_sequence(name: str) -> None:
    """A tap captures the same in a packed batch as of its sequence alone, and nothing of the others."""
    model = make(TRANSFORMER_GENERATORS[name], double=True)
    captured: list[list[Activation]] = [[] for _ in TEXTS]
    taps = [None if text == 2 else Tap(captured[text].append, steps=KNOWN_STEPS) for text in range(len(TEXTS))]
    model.forward_varlen(TEXTS, new_states(model), tap=taps)
    assert not captured[2]
    for text in (0, 1, 3):
        alone: list[Activation] = []
        model.forward_varlen([TEXTS[text]], [new_states(model)[text]], tap=[Tap(alone.append, steps=KNOWN_STEPS)])
        assert [(one.path, one.step) for one in captured[text]] == [(one.path, one.step) for one in alone]
        for one, other in zip(captured[text], alone, strict=True):
            torch.testing.assert_close(one.array, other.array, **CLOSE)


@pytest.mark.parametrize("name", ["learned", "grouped", "seq2seq"])
@torch.inference_mode()
def test_intervention_changes_only_its_sequence(name: str) -> None:
    model = make(TRANSFORMER_GENERATORS[name], double=True)
    plain = model.forward_varlen(TEXTS, new_states(model))

    def change(address, array):
        return array * 0.5 if address.step in ("query", "value", "context", "activation") else None

    intervened = model.forward_varlen(TEXTS, new_states(model), intervention=[None, change, None, None])
    both = model.forward_varlen(TEXTS, new_states(model), intervention=[change] * len(TEXTS))
    torch.testing.assert_close([intervened[n] for n in (0, 2, 3)], [plain[n] for n in (0, 2, 3)], **CLOSE)
    torch.testing.assert_close(intervened[1], both[1], **CLOSE)
    assert not torch.allclose(intervened[1], plain[1])


@pytest.mark.parametrize("wrong", [[1, 10**6], [-1], []])
@torch.inference_mode()
def test_refused_input_changes_no_state(wrong: list[int]) -> None:
    model = make(DECODERS["learned"])
    states = [model.new_state(), model.new_state()]
    model.forward_varlen([[1, 2], [3]], states)
    with pytest.raises(InvalidInput):
        model.forward_varlen([[4], wrong], states)
    with pytest.raises(InvalidInput, match="at most 64"):
        model.forward_varlen([[4], [1] * 64], states)
    assert [state.length for state in states] == [2, 1]
    assert [state.layers[0].length for state in states] == [2, 1]


def test_no_sequences() -> None:
    assert make(DECODERS["learned"]).forward_varlen([], []) == []


@torch.inference_mode()
def test_attention_across_sequences_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inverse: if all sequences use the first one's KV cache, the logits differ."""
    model = make(DECODERS["learned"], double=True)
    alone = [model.forward_varlen([[token]], [model.new_state()])[0] for token in (1, 2)]
    first: list[Any] = []

    def first_cache(self: Attention, ctx: Any) -> Any:
        first.append(ctx.kv_cache)
        return first[0].layers[self.path.layer]

    monkeypatch.setattr(Attention, "_layer_cache", first_cache)
    actual = model.forward_varlen([[1], [2]], [model.new_state(), model.new_state()])
    torch.testing.assert_close(actual[0], alone[0], **CLOSE)
    assert not torch.allclose(actual[1], alone[1])
