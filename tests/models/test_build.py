"""Every kind of model can be built, described, run and refilled; weights depend only on the seed."""

import pytest
import torch
from tests.models.tiny_models import ALL_MODELS, GENERATIVE_MODELS, TRANSFORMERS, VOCAB_SIZE, make, some_ids, source_of

from peasy.errors import InvalidInput
from peasy.models.build import MODEL_CLASSES, build
from peasy.models.preset import preset


def run(model, ids):
    with torch.inference_mode():
        return model(ids, **source_of(model))


def test_every_kind_has_a_class():
    assert {config.kind for config in MODEL_CLASSES} == {ALL_MODELS[name].kind for name in ALL_MODELS}


@pytest.mark.parametrize("name", ALL_MODELS)
def test_weights_depend_only_on_the_seed(name):
    one, same, other = (build(ALL_MODELS[name], seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    random_weights = [(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True) if a.std() > 0]
    assert all(not torch.equal(a, b) for a, b in random_weights)
    assert random_weights or name == "ngram"


@pytest.mark.parametrize("name", ALL_MODELS)
def test_initial_logits_are_small(name):
    """Logits are finite and small, so that the initial loss is about log(vocab_size)."""
    model = build(ALL_MODELS[name])
    logits = run(model, some_ids())
    assert logits.isfinite().all()
    assert logits.std() < 1.5


@pytest.mark.parametrize("name", ALL_MODELS)
def test_meta_model_can_be_filled(name):
    """Built on the meta device and given the tensors of another model: no parameter is left empty."""
    model = make(ALL_MODELS[name])
    empty = build(ALL_MODELS[name], seed=None)
    assert all(weight.is_meta for weight in empty.state_dict().values())
    state = model.state_dict()
    if hasattr(empty, "allocate"):
        empty.allocate({key: tuple(array.shape) for key, array in state.items()})
    empty.load_state_dict(state, assign=True)
    assert all(a.data_ptr() == b.data_ptr() for a, b in zip(state.values(), empty.state_dict().values(), strict=True))
    assert torch.equal(run(model, some_ids()), run(empty, some_ids()))


@pytest.mark.parametrize("name", ALL_MODELS)
def test_state_dict_has_no_shared_tensors(name):
    state = build(ALL_MODELS[name]).state_dict()
    pointers = [array.data_ptr() for array in state.values() if array.numel()]
    assert len(pointers) == len(set(pointers))


@pytest.mark.parametrize("name", ALL_MODELS)
def test_every_weight_matters(name):
    """Every weight gets a gradient from the logits, except those used otherwise."""
    model = make(ALL_MODELS[name])
    if model.trained_by == "counts":
        return
    ids = some_ids()
    model(ids, **source_of(model)).square().mean().backward()
    unused = {key for key, weight in model.named_parameters() if weight.grad is None}
    assert {name for name in unused if not name.startswith(("classifier.", "dense."))} <= {
        "pooler.weight",
        "pooler.bias",
    }


@pytest.mark.parametrize("name", ALL_MODELS)
def test_description_adds_up(name):
    model = make(ALL_MODELS[name])
    box = model.describe()
    assert box.parameters == model.count_parameters()
    assert box.bytes == model.weight_bytes()
    for nested in box.walk():
        inside = sum(inner.parameters * inner.repeats for inner in nested.boxes)
        own = sum(torch.Size(shape).numel() for _, shape in nested.weights)
        assert nested.parameters == inside + own


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_half_precision_is_close(name):
    model, ids = make(TRANSFORMERS[name]), some_ids() % 50
    exact = run(model, ids)
    rough = run(model.bfloat16(), ids).float()
    assert torch.nn.functional.cosine_similarity(exact.flatten(), rough.flatten(), dim=0) > 0.98


@pytest.mark.parametrize("name", GENERATIVE_MODELS)
def test_last_position_only(name):
    model, ids = make(GENERATIVE_MODELS[name]), some_ids()
    with torch.inference_mode():
        last = model(ids, last_only=True, **source_of(model))
    torch.testing.assert_close(last, run(model, ids)[:, -1:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ALL_MODELS)
@pytest.mark.parametrize("wrong", [-1, 1000])
def test_ids_outside_the_vocabulary_are_refused(name, wrong):
    model = make(ALL_MODELS[name])
    with pytest.raises(InvalidInput, match=f"There is no token {wrong}: the vocabulary has ids"):
        run(model, torch.tensor([[1, wrong], [3, 4]]))


def test_wrong_shapes_are_refused():
    model = make(ALL_MODELS["learned"])
    for ids in (torch.tensor([1, 2]), torch.zeros(2, 0, dtype=torch.int64)):
        with pytest.raises(InvalidInput, match="ids have the shape"):
            model(ids)


def test_too_long_sequences_are_refused():
    model = make(ALL_MODELS["learned"])
    with pytest.raises(InvalidInput, match="has 65 tokens; this model reads at most 64"):
        model(some_ids(1, 65))
    cache = model.new_state()
    with torch.inference_mode():
        model(some_ids(1, 60), cache=cache)
        with pytest.raises(InvalidInput, match="has 65 tokens"):
            model(some_ids(1, 5), cache=cache)


def test_dropout_only_in_training():
    model = build(
        preset("vaswani-base", d_model=16, vocab_size=VOCAB_SIZE, encoder={"num_layers": 1}, decoder={"num_layers": 1})
    )
    ids = some_ids()
    assert torch.equal(model(ids, source=ids), model(ids, source=ids))
    model.train()
    assert not torch.equal(model(ids, source=ids), model(ids, source=ids))


def test_source_is_required():
    model = make(ALL_MODELS["seq2seq"])
    for call in (lambda: model(some_ids()), lambda: model.new_state()):
        with pytest.raises(InvalidInput, match="needs a source sequence, but none was given"):
            call()


@pytest.mark.parametrize(("name", "std"), [("gpt-tiny", 0.02), ("rnn-tiny", 0.3), ("rnn-translator-tiny", 0.3)])
def test_embedding_standard_deviation(name, std):
    """A norm rescales small vectors; the gates of a recurrent cell need larger ones."""
    model = build(preset(name), seed=3)
    tables = [module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    assert tables
    assert all(float(table.detach().std()) == pytest.approx(std, rel=0.05) for table in tables)
