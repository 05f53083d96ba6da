"""Families of the BERT kind: what each does differently from BERT."""

from dataclasses import replace
from functools import partial

from peasy.checkpoint.huggingface.bert import (
    BERT_LAYER_NAMES,
    BertOptions,
    read_config,
    weight_map,
    write_config,
)
from peasy.checkpoint.huggingface.classification import architecture_ending
from peasy.checkpoint.huggingface.family import ModelFamily
from peasy.checkpoint.huggingface.weight_map import block_names
from peasy.models.config import EncoderConfig
from peasy.nn.config import ClassifierConfig

_BERT = BertOptions(
    prefix="bert.",
    head_transform="cls.predictions.transform.dense",
    head_norm="cls.predictions.transform.LayerNorm",
    head_decoder="cls.predictions.decoder",
    head_bias="cls.predictions.bias",
    unused=("cls.seq_relationship.weight", "cls.seq_relationship.bias"),
)
_ROBERTA = BertOptions(
    prefix="roberta.",
    head_transform="lm_head.dense",
    head_norm="lm_head.layer_norm",
    head_decoder="lm_head.decoder",
    head_bias="lm_head.bias",
    offset_positions=True,
    head_activation="gelu",
    default_pad_id=1,
    classifier=ClassifierConfig((), transform="tanh"),
    classifier_names={"classifier.dense": "transform", "classifier.out_proj": "output"},
)
_PRE_NORM_NAMES = {"attention.LayerNorm": "attention_norm", "intermediate.LayerNorm": "feedforward_norm"}
_PRE_NORM = replace(
    _ROBERTA,
    prefix="roberta_prelayernorm.",
    norm_placement="pre",
    layer_names={name: ours for name, ours in BERT_LAYER_NAMES.items() if "Norm" not in name} | _PRE_NORM_NAMES,
)
_MPNET = replace(
    _ROBERTA,
    prefix="mpnet.",
    layer_names=block_names(
        "attention.attn.q attention.attn.k attention.attn.v attention.attn.o attention.LayerNorm "
        "intermediate.dense output.dense output.LayerNorm"
    ),
    fields={"type_vocab_size": None},
    relative_bias="encoder.relative_attention_bias",
)
_DISTILBERT = BertOptions(
    prefix="distilbert.",
    head_transform="vocab_transform",
    head_norm="vocab_layer_norm",
    head_decoder="vocab_projector",
    head_bias="vocab_projector.bias",
    layers="transformer.layer.{layer}.",
    layer_names=block_names(
        "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm "
        "ffn.lin1 ffn.lin2 output_layer_norm"
    ),
    fields={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": None,
        "type_vocab_size": None,
    },
    classifier=ClassifierConfig((), transform="relu"),
    classifier_names={"pre_classifier": "transform", "classifier": "output"},
)
_ELECTRA = replace(
    _BERT,
    prefix="electra.",
    head_transform="generator_predictions.dense",
    head_norm="generator_predictions.LayerNorm",
    head_decoder="generator_lm_head",
    head_bias="generator_lm_head.bias",
    head_activation="gelu",
    classifier=ClassifierConfig((), transform="gelu"),
    classifier_names={"classifier.dense": "transform", "classifier.out_proj": "output"},
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
    head_transform="predictions.dense",
    head_norm="predictions.LayerNorm",
    head_decoder="predictions.decoder",
    head_bias="predictions.bias",
    layers="encoder.albert_layer_groups.0.albert_layers.0.",
    layer_names=block_names(
        "attention.query attention.key attention.value attention.dense attention.LayerNorm "
        "ffn ffn_output full_layer_layer_norm"
    ),
    pooler="pooler",
    projection="encoder.embedding_hidden_mapping_in",
    shared_layers=True,
    default_activation="gelu_new",
    unused=("sop_classifier.classifier.weight", "sop_classifier.classifier.bias"),
)


def _make_family(name: str, prefix: str, options: BertOptions, pretraining: bool = False) -> ModelFamily:
    def architecture(config: EncoderConfig) -> str:
        masked = "ForPreTraining" if pretraining and config.pooler else "ForMaskedLM"
        return prefix + architecture_ending(config.classifier, "Model" if config.lm_head is None else masked)

    heads = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForPreTraining")
    return ModelFamily(
        name,
        EncoderConfig,
        tuple(f"{prefix}{head}" for head in heads if pretraining or name == "electra" or head != "ForPreTraining"),
        partial(read_config, options=options),
        partial(write_config, options=options),
        partial(weight_map, options=options),
        prefix=options.prefix,
        architecture_of=architecture,
    )


FAMILIES = (
    _make_family("bert", "Bert", _BERT, pretraining=True),
    _make_family("roberta", "Roberta", _ROBERTA),
    _make_family("xlm-roberta", "XLMRoberta", _ROBERTA),
    _make_family("camembert", "Camembert", _ROBERTA),
    _make_family("roberta-prelayernorm", "RobertaPreLayerNorm", _PRE_NORM),
    _make_family("distilbert", "DistilBert", _DISTILBERT),
    _make_family("mpnet", "MPNet", _MPNET),
    _make_family("electra", "Electra", _ELECTRA),
    _make_family("albert", "Albert", _ALBERT, pretraining=True),
)
