"""Packed batches: sequences of any lengths in one pass, each with its own decoding state."""

from typing import Any

import pytest
import torch
from tests.models.tiny_models import DECODERS, TRANSLATORS, WRITERS, make, some_ids

from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset, presets
from peasy.models.protocol import Model
from peasy.nn import kv_cache as caches
from peasy.nn.attention import Attention
from peasy.nn.tap import KNOWN_STEPS, Activation, Tap

ROWS = DECODERS | TRANSLATORS
TEXTS = [[1, 2, 3, 4, 5, 6, 7], [7], [3, 1, 4], [9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4]]
KINDS = {type(config).kind for config in WRITERS.values()}
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture(params=WRITERS)
def model(request: pytest.FixtureRequest) -> Model:
    return make(WRITERS[request.param], double=True).eval()


def source_of(model: Model, text: int) -> dict[str, torch.Tensor]:
    """Return a source of another length for each sequence."""
    return {"source": some_ids(1, 5 + 2 * text, seed=text)} if model.is_encoder_decoder else {}


def start(model: Model) -> list[Any]:
    return [model.new_state(**source_of(model, text)) for text in range(len(TEXTS))]


def whole(model: Model, text: int) -> torch.Tensor:
    return model(torch.tensor([TEXTS[text]]), **source_of(model, text))[0]


@torch.inference_mode()
def read_in_pieces(model: Model, pieces: list[list[int]]) -> list[torch.Tensor]:
    """Return the logits after every token of every sequence; `pieces[turn][text]` new tokens are run at each turn."""
    memories, at = start(model), [0] * len(TEXTS)
    found: list[list[torch.Tensor]] = [[] for _ in TEXTS]
    for sizes in pieces:
        going = [text for text, size in enumerate(sizes) if size and at[text] < len(TEXTS[text])]
        new = [TEXTS[text][at[text] : at[text] + sizes[text]] for text in going]
        for text, scores in zip(
            going, model.forward_varlen(new, [memories[text] for text in going], all_positions=True), strict=True
        ):
            found[text].append(scores)
            at[text] += len(scores)
    assert at == [len(text) for text in TEXTS] == [memory.length for memory in memories]
    return [torch.cat(scores) for scores in found]


STEP_BY_STEP = [[1] * 4] * 11
PIECES = [[3, 1, 2, 5], [2, 0, 1, 1], [0, 0, 0, 1], [2, 0, 0, 4]]


@pytest.mark.parametrize("pieces", [STEP_BY_STEP, PIECES, [[11] * 4]])
@torch.inference_mode()
def test_packed_batch_equals_single_sequences(model: Model, pieces: list[list[int]]) -> None:
    for text, scores in enumerate(read_in_pieces(model, pieces)):
        torch.testing.assert_close(scores, whole(model, text), **CLOSE)


@torch.inference_mode()
def test_last_logits_equal_the_last_of_all(model: Model) -> None:
    every = model.forward_varlen(TEXTS, start(model), all_positions=True)
    last = model.forward_varlen(TEXTS, start(model))
    for scores, final in zip(every, last, strict=True):
        assert final.shape == (scores.shape[-1],)
        torch.testing.assert_close(final, scores[-1], **CLOSE)


@pytest.mark.parametrize("name", ROWS)
@torch.inference_mode()
def test_packed_batch_equals_padded_batch(name: str) -> None:
    model = make(ROWS[name], double=True)
    longest = max(map(len, TEXTS))
    ids = torch.tensor([[0] * (longest - len(text)) + text for text in TEXTS])
    real = torch.tensor([[False] * (longest - len(text)) + [True] * len(text) for text in TEXTS])
    source = {"source": some_ids(1, 9)} if model.is_encoder_decoder else {}
    batch = {key: value.expand(len(TEXTS), -1) for key, value in source.items()}
    padded = model(ids, padding_mask=real, last_only=True, **batch)[:, -1]
    found = model.forward_varlen(TEXTS, [model.new_state(**source) for _ in TEXTS])
    torch.testing.assert_close(torch.stack(found), padded, **CLOSE)


@pytest.mark.parametrize("name", ["window", "windowed-layers", "learned", "relative"])
def test_windows_and_capacities_are_independent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "BLOCK_TOKENS", 4)
    model = make(DECODERS[name], double=True)
    for text, scores in enumerate(read_in_pieces(model, STEP_BY_STEP)):
        torch.testing.assert_close(scores, whole(model, text), **CLOSE)


WRITING = [each.name for each in presets() if each.name.endswith("-tiny") and each.config.kind in KINDS]


@pytest.mark.parametrize("name", WRITING)
@torch.inference_mode()
def test_presets_that_generate(name: str) -> None:
    model = build(preset(name), seed=1).eval()
    texts = [[1, 2, 3], [4]]
    sources = [{"source": torch.tensor([text])} if model.is_encoder_decoder else {} for text in ([4, 5, 6], [7, 8])]
    found = model.forward_varlen(texts, [model.new_state(**source) for source in sources])
    for ids, source, scores in zip(texts, sources, found, strict=True):
        torch.testing.assert_close(scores, model(torch.tensor([ids]), **source)[0, -1], rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_forked_state_is_independent(model: Model) -> None:
    memory = model.new_state(**source_of(model, 0))
    model.forward_varlen([[1, 2]], [memory])
    other = memory.fork()
    model.forward_varlen([[9]], [other])
    expected = model(torch.tensor([[1, 2, 3]]), **source_of(model, 0))[0, -1]
    torch.testing.assert_close(model.forward_varlen([[3]], [memory])[0], expected, **CLOSE)
    assert (memory.length, other.length) == (3, 3)


@pytest.mark.parametrize("name", ROWS)
@torch.inference_mode()
def test_one_tap_per_sequence(name: str) -> None:
    """A tap captures the same in a packed batch as of its sequence alone, and nothing of the others."""
    model = make(ROWS[name], double=True)
    seen: list[list[Activation]] = [[] for _ in TEXTS]
    taps = [None if text == 2 else Tap(seen[text].append, steps=KNOWN_STEPS) for text in range(len(TEXTS))]
    model.forward_varlen(TEXTS, start(model), tap=taps)
    assert not seen[2]
    for text in (0, 1, 3):
        alone: list[Activation] = []
        model.forward_varlen([TEXTS[text]], [start(model)[text]], tap=Tap(alone.append, steps=KNOWN_STEPS))
        assert [(one.path, one.step) for one in seen[text]] == [(one.path, one.step) for one in alone]
        for one, other in zip(seen[text], alone, strict=True):
            torch.testing.assert_close(one.array, other.array, **CLOSE)


@pytest.mark.parametrize("name", ["learned", "grouped", "both"])
@torch.inference_mode()
def test_intervention_changes_only_its_sequence(name: str) -> None:
    model = make(ROWS[name], double=True)
    plain = model.forward_varlen(TEXTS, start(model))
    edited = model.forward_varlen(TEXTS, start(model), intervention=[None, lambda _, context: context * 0, None, None])
    both = model.forward_varlen(TEXTS, start(model), intervention=lambda _, context: context * 0)
    torch.testing.assert_close([edited[n] for n in (0, 2, 3)], [plain[n] for n in (0, 2, 3)], **CLOSE)
    torch.testing.assert_close(edited[1], both[1], **CLOSE)
    assert not torch.allclose(edited[1], plain[1])


@pytest.mark.parametrize("wrong", [[1, 10**6], [-1], []])
@torch.inference_mode()
def test_refused_input_changes_no_state(wrong: list[int]) -> None:
    model = make(DECODERS["learned"])
    memories = [model.new_state(), model.new_state()]
    model.forward_varlen([[1, 2], [3]], memories)
    with pytest.raises(InvalidInput):
        model.forward_varlen([[4], wrong], memories)
    with pytest.raises(InvalidInput, match="at most 64"):
        model.forward_varlen([[4], [1] * 64], memories)
    assert [memory.length for memory in memories] == [2, 1]
    assert [memory.layers[0].length for memory in memories] == [2, 1]


def test_no_sequences() -> None:
    assert make(DECODERS["learned"]).forward_varlen([], []) == []


@torch.inference_mode()
def test_attention_across_sequences_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inverse: if all sequences use the first one's KV cache, the logits differ."""
    model = make(DECODERS["learned"], double=True)
    alone = [model.forward_varlen([[token]], [model.new_state()])[0] for token in (1, 2)]
    first: list[Any] = []

    def memory(self: Attention, scene: Any) -> Any:
        first.append(scene.cache)
        return first[0].layers[self.path.layer]

    monkeypatch.setattr(Attention, "_layer_cache", memory)
    found = model.forward_varlen([[1], [2]], [model.new_state(), model.new_state()])
    torch.testing.assert_close(found[0], alone[0], **CLOSE)
    assert not torch.allclose(found[1], alone[1])
