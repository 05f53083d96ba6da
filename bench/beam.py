"""Beam search against CTranslate2: the same encoder-decoder weights, float32, four beams.

    python -m bench.beam [rounds]                      # default: 5 rounds

The base model of the paper with random weights and a vocabulary of 32,000; four sources of 24 tokens, outputs of 48.
Both must give the same outputs before anything is timed. Each runs in its own process. The goal is to be as fast; a
ratio below it is exit code 1.
"""

import os
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import torch

from bench.decoding import THREADS, copy_linears, copy_norm, to_numpy
from bench.measure import Peer, alternate, machine

NUM_SOURCES, SOURCE_TOKENS, NEW_TOKENS, NUM_BEAMS, VOCAB_SIZE, GOAL = 4, 24, 48, 4, 32_000, 1.0


def work_dir() -> Path:
    return Path(os.environ["BENCH_HOME"])


def sources() -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(1, VOCAB_SIZE, (NUM_SOURCES, SOURCE_TOKENS), generator=generator).tolist()


@cache
def unpacked_model() -> Any:
    """Return a random model with weights large enough that it does not repeat one token for ever."""
    from peasy.models.build import build
    from peasy.models.preset import preset

    model = build(
        preset("vaswani-base", vocab_size=VOCAB_SIZE, special_tokens={"decoder_start": 0, "eos": []}), seed=1
    ).eval()
    with torch.no_grad():
        for weight in [*model.decoder.parameters(), *model.encoder.parameters()]:
            weight.mul_(3 if weight.ndim == 2 else 1)
    return model


@cache
def packed_model() -> Any:
    from peasy.generation.packed import pack, packing_of

    model = pack(unpacked_model(), "float32")
    print(packing_of(model), file=sys.stderr)
    return model


def peasy() -> list[list[int]]:
    from peasy.generation.decode import beam_search
    from peasy.generation.sampling_params import BeamSearchParams

    params = BeamSearchParams(NUM_BEAMS, NEW_TOKENS, length_penalty=1.0)
    return [list(result.hypotheses[0].ids) for result in beam_search(packed_model(), params=params, source=sources())]


@cache
def translator() -> Any:
    import ctranslate2

    return ctranslate2.Translator(
        str(work_dir() / "ct2"), compute_type="float32", intra_threads=THREADS, inter_threads=1
    )


def ctranslate2() -> list[list[int]]:
    tokens = [[str(token) for token in source] for source in sources()]
    results = translator().translate_batch(
        tokens,
        beam_size=NUM_BEAMS,
        max_decoding_length=NEW_TOKENS,
        min_decoding_length=NEW_TOKENS,
        length_penalty=1.0,
    )
    return [[int(token) for token in result.hypotheses[0]] for result in results]


def make_files(folder: Path) -> None:
    """Write the same weights in the format of CTranslate2."""
    from ctranslate2.specs import Activation, TransformerSpec

    from peasy.nn.position import sinusoidal_encoding

    model, c = unpacked_model(), unpacked_model().config
    pre_norm = c.decoder.norm.placement == "pre"
    num_layers = (c.encoder.num_layers, c.decoder.num_layers)
    spec = TransformerSpec.from_config(
        num_layers, c.encoder.attention.num_heads, pre_norm=pre_norm, activation=Activation.RELU
    )
    positions = to_numpy(sinusoidal_encoding(torch.arange(512), c.d_model, c.position.layout))
    embedding = to_numpy(model.embedding.token.weight)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = embedding
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        side.scale_embeddings, side.position_encodings.encodings = c.embedding.scaled, positions
        if pre_norm:
            copy_norm(side.layer_norm, stack.norm)
        for layer, block in zip(side.layer, stack.blocks, strict=True):
            copy_layer(layer, block)
    vocabulary = [str(token) for token in range(VOCAB_SIZE - 1)] + ["</s>"]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.decoder_start_token, spec.config.add_source_eos = "0", False
    spec.config.unk_token = spec.config.bos_token = "0"
    spec.config.layer_norm_epsilon = c.decoder.norm.eps
    spec.validate()
    spec.optimize()
    (folder / "ct2").mkdir()
    spec.save(str(folder / "ct2"))


def copy_layer(target: Any, block: Any) -> None:
    attention = block.attention
    copy_norm(target.self_attention.layer_norm, block.attention_norm)
    copy_linears(target.self_attention.linear[0], attention.query, attention.key, attention.value)
    copy_linears(target.self_attention.linear[1], attention.output)
    copy_norm(target.ffn.layer_norm, block.feedforward_norm)
    copy_linears(target.ffn.linear_0, block.feedforward.up)
    copy_linears(target.ffn.linear_1, block.feedforward.down)
    if block.cross_attention is not None:
        attention = block.cross_attention
        copy_norm(target.attention.layer_norm, block.cross_attention_norm)
        copy_linears(target.attention.linear[0], attention.query)
        copy_linears(target.attention.linear[1], attention.key, attention.value)
        copy_linears(target.attention.linear[2], attention.output)


def check_equal() -> None:
    """Check that both give the same outputs, before timing. Called in its own process."""
    actual, expected = peasy(), ctranslate2()
    same = sum(ids == other for ids, other in zip(actual, expected, strict=True))
    distinct = len({id for ids in actual for id in ids})
    print(f"{same} of {NUM_SOURCES} outputs are the same; {distinct} distinct tokens", file=sys.stderr)
    assert same == NUM_SOURCES, (actual, expected)


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {machine()}; {rounds} rounds")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as exit_stack:
        os.environ["BENCH_HOME"] = folder
        make_files(Path(folder))
        with Peer("bench.beam:check_equal") as check:
            check()
        peers = {name: exit_stack.enter_context(Peer(f"bench.beam:{name}")) for name in ("peasy", "ctranslate2")}
        timings = alternate(rounds, warm_up=1, **peers)
    print(*timings.values(), sep="\n")
    ratio = timings["ctranslate2"].ratio_to(timings["peasy"])
    print(f"{ratio:.2f} times as fast as CTranslate2, goal {GOAL}{'' if ratio >= GOAL else '   MISSED'}")
    return int(ratio < GOAL)


if __name__ == "__main__":
    sys.exit(main())
