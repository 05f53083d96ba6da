"""Parameter roles, guessed from names: query, key, value, mask, number of heads, cache."""

import re
from collections.abc import Iterable

from peasy.errors import InvalidInput
from peasy.verification.implementation.target import SignatureParameter, TargetDescription

NAMES_BY_ROLE = {
    "query": "q query queries qs xq q_in query_states",
    "key": "k key keys ks xk k_in key_states",
    "value": "v value values val vals vs xv v_in value_states",
    "x": "x input inputs inp hidden hidden_states hidden_state embeddings embedding emb tokens seq sequence src data"
    " states",
    "source": "source memory context encoder_hidden_states encoder_output encoder_outputs enc enc_out kv x_kv y cross",
    "mask": "mask attn_mask attention_mask m masks src_mask tgt_mask causal_mask bias_mask visible allowed may_look"
    " keep hide hidden_mask additive_mask bias attn_bias attention_bias",
    "padding": "key_padding_mask padding_mask pad_mask key_mask valid kv_mask src_key_padding_mask",
    "heads": "heads num_heads n_heads n_head nhead nheads h head_count num_attention_heads numheads head",
    "key_heads": "kv_heads num_kv_heads n_kv_heads n_kv_head key_heads num_key_value_heads num_kv n_kv groups"
    " num_groups n_groups",
    "repeats": "n_rep num_rep rep repeats group group_size num_key_value_groups",
    "causal": "causal is_causal autoregressive look_back",
    "d_model": "d_model embed_dim dim hidden_size n_embd emb_dim d_in d_out width model_dim embedding_dim d_emb"
    " embed_size dmodel n_embed input_dim output_dim in_dim out_dim features d emb_size hidden_dim",
    "d_head": "d_k dk d_head head_dim head_size d_v dv dim_head key_dim value_dim d_key d_value",
    "length": "seq_len context_length block_size max_len max_seq_len n_ctx context_size max_length t window_size"
    " n_positions max_position_embeddings max_seq_length ctx_len seq_length",
    "dropout": "dropout dropout_p p attn_pdrop attn_dropout resid_pdrop p_drop dropout_rate drop attention_dropout",
    "training": "training train",
    "cache": "cache past past_key_value past_key_values kv_cache layer_past state layer_cache past_kv",
    "past_key": "past_k past_key past_keys k_cache cache_k key_cache k_past cached_k cached_keys",
    "past_value": "past_v past_value past_values v_cache cache_v value_cache v_past cached_v cached_values",
    "offset": "offset start_pos start pos position past_length past_len input_pos start_position pos_offset"
    " cache_length",
    "use_cache": "use_cache return_cache",
    "w_q": "w_q wq w_query wquery weight_q q_weight w_queries",
    "w_k": "w_k wk w_key wkey weight_k k_weight w_keys",
    "w_v": "w_v wv w_value wvalue weight_v v_weight w_values",
    "w_o": "w_o wo w_out w_output weight_o o_weight out_weight",
    "scale": "scale scaling softmax_scale",
    "weights": "need_weights return_weights return_attention output_attentions return_attn",
    "batch_first": "batch_first",
    "flag": "qkv_bias use_bias add_bias_kv",
    "config": "config cfg args conf params",
}
ROLE_BY_NAME = {name: role for role, names in NAMES_BY_ROLE.items() for name in names.split()}
CALL_WORDS = (
    "q",
    "k",
    "v",
    "x",
    "source",
    "mask",
    "w_q",
    "w_k",
    "w_v",
    "w_o",
    "heads",
    "past_k",
    "past_v",
    "cache",
    "offset",
)
"""Words allowed in `--call`."""


def role_of(parameter: SignatureParameter, in_constructor: bool = False) -> str | None:
    """Return the role of a parameter; `in_constructor`: of a constructor, where `bias` is a flag and `d` is a size."""
    name = parameter.name.strip("_").lower()
    role = ROLE_BY_NAME.get(name) or ROLE_BY_NAME.get(
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", parameter.name).strip("_").lower()
    )
    if in_constructor and name in ("bias", "mask", "use_mask"):
        return "flag" if name == "bias" else "causal"
    if in_constructor and name in ("context", "window"):
        return "length"
    if in_constructor and role in ("key", "value", "query"):
        return "d_head"
    if not in_constructor and name in ("bias", "attn_bias", "attention_bias"):
        return "mask"
    if not in_constructor and name == "d":
        return None
    return role


def roles_of(description: TargetDescription, in_constructor: bool = False) -> dict[str, str]:
    """Return roles by parameter name; a required parameter without a known role is an error."""
    roles = {}
    for parameter in description.parameters:
        role = role_of(parameter, in_constructor)
        if role is None and parameter.required:
            raise InvalidInput(
                f'{description.name} needs "{parameter.name}", and its role cannot be guessed from its name.',
                hint=f'Give the call, with the words {", ".join(CALL_WORDS)}: --call "{_example_call(description)}"',
            )
        if role is not None:
            roles[parameter.name] = role
    return roles


def declared_mask_meaning(description: TargetDescription, names: Iterable[str]) -> str | None:
    """Return the documented meaning of True in a boolean mask: "attend" or "masked"; None if not documented."""
    docstring = description.docstring.lower()
    true = r"(?:true|1|ones?)\b[^.\n]{0,40}?"
    attends = r"(?:may|can|allow|attend|visible|keep|look|see|real|valid|participat)"
    masked = r"(?:hide|hidden|mask(?:ed)? out|ignore|block|not (?:attend|look|see|allowed)|forbid|pad)"
    if re.search(true + masked, docstring):
        return "masked"
    if re.search(true + attends, docstring):
        return "attend"
    for name in names:
        if name.lower() in ("visible", "allowed", "may_look", "keep", "valid"):
            return "attend"
        if name.lower() in ("hide", "hidden_mask"):
            return "masked"
    return None


def _example_call(description: TargetDescription) -> str:
    names = ", ".join(
        parameter.name if role_of(parameter) else "..." for parameter in description.parameters if parameter.required
    )
    return f"{description.name}({names})"
