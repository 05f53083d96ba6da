"""Beam search beside CTranslate2: the same encoder-decoder weights, float32, four beams.

    python -m bench.beam [rounds]                      # default: 5 rounds

The base model of the paper with random weights and 32,000 words; four sources of 24 tokens, answers of 48. Both must
find the same texts before anything is timed. Each runs in a process of its own. The goal is to be as fast; a ratio
below it is exit code 1.
"""

import os
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import torch

from bench.decoding import THREADS, _maps, _norm, _numbers
from bench.measure import Peer, alternate, machine

SOURCES, LENGTH, NEW, WIDTH, VOCABULARY, GOAL = 4, 24, 48, 4, 32_000, 1.0


def home() -> Path:
    return Path(os.environ["BENCH_HOME"])


def sources() -> list[list[int]]:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(1, VOCABULARY, (SOURCES, LENGTH), generator=draw).tolist()


@cache
def plain() -> Any:
    """Maps large enough that words differ: a random model would else repeat its word for ever."""
    from peasy.models.build import build
    from peasy.models.preset import preset

    model = build(preset("vaswani-base", vocabulary=VOCABULARY, special={"start": 0, "end": []}), seed=1).eval()
    with torch.no_grad():
        for weight in [*model.decoder.parameters(), *model.encoder.parameters()]:
            weight.mul_(3 if weight.ndim == 2 else 1)
    return model


@cache
def ours() -> Any:
    from peasy.generation.packed import pack, packing_of

    model = pack(plain(), "float32")
    print(packing_of(model).summary(), file=sys.stderr)
    return model


def peasy() -> list[list[int]]:
    from peasy.generation.beam_search import BeamSearchParams, beam_search

    found = beam_search(ours(), params=BeamSearchParams(WIDTH, NEW, length_penalty=1.0), source=sources())
    return [list(each.hypotheses[0].ids) for each in found]


@cache
def translator() -> Any:
    import ctranslate2

    return ctranslate2.Translator(str(home() / "ct2"), compute_type="float32", intra_threads=THREADS, inter_threads=1)


def ctranslate2() -> list[list[int]]:
    words = [[str(token) for token in source] for source in sources()]
    made = translator().translate_batch(
        words, beam_size=WIDTH, max_decoding_length=NEW, min_decoding_length=NEW, length_penalty=1.0
    )
    return [[int(word) for word in each.hypotheses[0]] for each in made]


def make_files(where: Path) -> None:
    """The same weights in CTranslate2's form."""
    from ctranslate2.specs import Activation, TransformerSpec

    from peasy.nn.position import sinusoidal_encoding

    model, c = plain(), plain().config
    before = c.decoder.norm.place == "before"
    spec = TransformerSpec.from_config(
        (c.encoder.layers, c.decoder.layers), c.encoder.attention.heads, pre_norm=before, activation=Activation.RELU
    )
    places = _numbers(sinusoidal_encoding(torch.arange(512), c.d_model, c.position.layout))
    words = _numbers(model.embedding.token.weight)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = words
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        side.scale_embeddings, side.position_encodings.encodings = c.embedding.scaled, places
        if before:
            _norm(side.layer_norm, stack.norm)
        for theirs, block in zip(side.layer, stack.blocks, strict=True):
            _layer(theirs, block)
    vocabulary = [str(token) for token in range(VOCABULARY - 1)] + ["</s>"]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.decoder_start_token, spec.config.add_source_eos = "0", False
    spec.config.unk_token = spec.config.bos_token = "0"
    spec.config.layer_norm_epsilon = c.decoder.norm.epsilon
    spec.validate()
    spec.optimize()
    (where / "ct2").mkdir()
    spec.save(str(where / "ct2"))


def _layer(theirs: Any, block: Any) -> None:
    look = block.attention
    _norm(theirs.self_attention.layer_norm, block.attention_norm)
    _maps(theirs.self_attention.linear[0], look.query, look.key, look.value)
    _maps(theirs.self_attention.linear[1], look.output)
    _norm(theirs.ffn.layer_norm, block.feedforward_norm)
    _maps(theirs.ffn.linear_0, block.feedforward.up)
    _maps(theirs.ffn.linear_1, block.feedforward.down)
    if block.cross_attention is not None:
        look = block.cross_attention
        _norm(theirs.attention.layer_norm, block.cross_attention_norm)
        _maps(theirs.attention.linear[0], look.query)
        _maps(theirs.attention.linear[1], look.key, look.value)
        _maps(theirs.attention.linear[2], look.output)


def agree() -> None:
    """The same texts, before any time is taken. Called in a process of its own."""
    found, expected = peasy(), ctranslate2()
    same = sum(one == other for one, other in zip(found, expected, strict=True))
    words = len({word for text in found for word in text})
    print(f"{same} of {SOURCES} texts are the same; {words} different words", file=sys.stderr)
    assert same == SOURCES, (found, expected)


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stay:
        os.environ["BENCH_HOME"] = folder
        make_files(Path(folder))
        with Peer("bench.beam:agree") as agreeing:
            agreeing()
        peers = {name: stay.enter_context(Peer(f"bench.beam:{name}")) for name in ("peasy", "ctranslate2")}
        took = alternate(rounds, warm_up=1, **peers)
    print(*took.values(), sep="\n")
    ratio = took["ctranslate2"].over(took["peasy"])
    print(f"{ratio:.2f} times as fast as CTranslate2, goal {GOAL}{'' if ratio >= GOAL else '   MISSED'}")
    return int(ratio < GOAL)


if __name__ == "__main__":
    sys.exit(main())
