"""Families of the BERT kind: what each does differently from BERT."""

from dataclasses import replace
from typing import Any

from peasy.checkpoint.huggingface.bert import (
    BERT_LAYER_NAMES,
    BertNames,
    HeadNames,
    bert_family,
    head_names,
    usual_fields,
)
from peasy.checkpoint.huggingface.config_fields import ConfigFields
from peasy.checkpoint.huggingface.config_table import Field, Fixed, activation, sizes
from peasy.checkpoint.huggingface.weight_map import block_names

_TRANSFORMED = {"classifier.dense": "transform", "classifier.out_proj": "output"}
_BERT = BertNames(
    prefix="bert.",
    head=head_names("cls.predictions.", transform="transform.dense", norm="transform.LayerNorm"),
    unused=("cls.seq_relationship.weight", "cls.seq_relationship.bias"),
)
_ROBERTA = BertNames(prefix="roberta.", head=head_names("lm_head.", norm="layer_norm"), classifier_names=_TRANSFORMED)
_PRE_NORM_NAMES = {"attention.LayerNorm": "attention_norm", "intermediate.LayerNorm": "feedforward_norm"}
_PRE_NORM = replace(
    _ROBERTA,
    prefix="roberta_prelayernorm.",
    layer_names={name: ours for name, ours in BERT_LAYER_NAMES.items() if "Norm" not in name} | _PRE_NORM_NAMES,
)
_MPNET = replace(
    _ROBERTA,
    prefix="mpnet.",
    layer_names=block_names(
        "attention.attn.q attention.attn.k attention.attn.v attention.attn.o attention.LayerNorm "
        "intermediate.dense output.dense output.LayerNorm"
    ),
    relative_bias="encoder.relative_attention_bias",
)
_DISTILBERT = BertNames(
    prefix="distilbert.",
    head=HeadNames("vocab_transform", "vocab_layer_norm", decoder="vocab_projector", bias="vocab_projector.bias"),
    layers="transformer.layer.{layer}.",
    layer_names=block_names(
        "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm "
        "ffn.lin1 ffn.lin2 output_layer_norm"
    ),
    classifier_names={"pre_classifier": "transform", "classifier": "output"},
)
_ELECTRA = replace(
    _BERT,
    prefix="electra.",
    head=head_names("generator_predictions.")._replace(decoder="generator_lm_head", bias="generator_lm_head.bias"),
    classifier_names=_TRANSFORMED,
    pooler=None,
    projection="embeddings_project",
    unused=tuple(
        f"discriminator_predictions.{module}.{kind}"
        for module in ("dense", "dense_prediction")
        for kind in ("weight", "bias")
    ),
)
_ALBERT = replace(
    _BERT,
    prefix="albert.",
    head=head_names("predictions."),
    layers="encoder.albert_layer_groups.0.albert_layers.0.",
    layer_names=block_names(
        "attention.query attention.key attention.value attention.dense attention.LayerNorm "
        "ffn ffn_output full_layer_layer_norm"
    ),
    pooler="pooler",
    projection="encoder.embedding_hidden_mapping_in",
    shared_layers=True,
    unused=("sop_classifier.classifier.weight", "sop_classifier.classifier.bias"),
)
_DISTILBERT_FIELDS = (
    *sizes("vocab_size dim n_layers n_heads hidden_dim"),
    activation("activation", "gelu"),
    Field("dropout attention_dropout", "dropout", ConfigFields.probability, 0.1),
)
_ALBERT_FIELDS = (
    *usual_fields("gelu_new"),
    *(
        Fixed(name, (1,), "Several groups of layers are not supported.")
        for name in ("num_hidden_groups", "inner_group_num")
    ),
)
_MPNET_FIELDS = (
    *usual_fields(segments=False),
    Fixed("relative_attention_num_buckets", (32,), "transformers always computes 32 buckets."),
)
_RELATIVE = {"position.relative.kind": "relative", "position.relative.num_buckets": 32}
_TANH, _RELU, _GELU = ({"transform": name} for name in ("tanh", "relu", "gelu"))
_FAIRSEQ: Any = {"default_pad_id": 1, "head_activation": "gelu", "classifier": _TANH}
"""Options of the families that follow RoBERTa."""

FAMILIES = (
    bert_family("bert", "Bert", _BERT, pretraining=True),
    bert_family("roberta", "Roberta", _ROBERTA, **_FAIRSEQ),
    bert_family("xlm-roberta", "XLMRoberta", _ROBERTA, **_FAIRSEQ),
    bert_family("camembert", "Camembert", _ROBERTA, **_FAIRSEQ),
    bert_family(
        "roberta-prelayernorm", "RobertaPreLayerNorm", _PRE_NORM, settings={"stack.norm.placement": "pre"}, **_FAIRSEQ
    ),
    bert_family("distilbert", "DistilBert", _DISTILBERT, fields=_DISTILBERT_FIELDS, classifier=_RELU),
    bert_family("mpnet", "MPNet", _MPNET, fields=_MPNET_FIELDS, settings=_RELATIVE, **_FAIRSEQ),
    bert_family("electra", "Electra", _ELECTRA, head_activation="gelu", classifier=_GELU, pretraining=True),
    bert_family("albert", "Albert", _ALBERT, fields=_ALBERT_FIELDS, pretraining=True),
)
