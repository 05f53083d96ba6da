"""Call binding: roles (query, key, mask, ...) of parameters, guessed from their names or given by `--call`."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from peasy.errors import InvalidInput, UsageError, did_you_mean
from peasy.verification.implementation.target import Arg, SignatureParameter, TargetDescription

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
_CALL_WORDS = (
    "q", "k", "v", "x", "source", "mask", "w_q", "w_k", "w_v", "w_o", "heads", "past_k", "past_v", "cache", "offset",
)  # fmt: skip
"""Words allowed in `--call`."""

_ROLE_OF_WORD = {"q": "query", "k": "key", "v": "value", "past_k": "past_key", "past_v": "past_value"}
"""Short words of `--call` for longer roles; the other words are role names."""


@dataclass(frozen=True)
class _ArgumentSlot:
    """One argument: a role or a literal value; `name` None = positional."""

    name: str | None
    role: str | None
    literal: Arg = None
    required: bool = True


@dataclass(frozen=True)
class CallBinding:
    """All arguments of a call. `constructor_args` are the constructor arguments given by `--call`."""

    name: str
    slots: tuple[_ArgumentSlot, ...]
    constructor_args: tuple[Sequence[Arg], Mapping[str, Arg]] | None = None

    def has_roles(self, *roles: str) -> bool:
        """Return whether all these roles are bound."""
        return set(roles) <= {slot.role for slot in self.slots}

    def requires(self, role: str) -> bool:
        """Return whether this role is required."""
        return any(slot.role == role and slot.required for slot in self.slots)

    def parameter_names(self, role: str) -> list[str]:
        """Return the target's parameter names for this role."""
        return [slot.name for slot in self.slots if slot.role == role and slot.name]

    def bind(self, values: Mapping[str, Arg]) -> tuple[list[Arg], dict[str, Arg]] | None:
        """Return (args, kwargs) for these values by role; None if a required role has no value."""
        args, kwargs = [], {}
        for slot in self.slots:
            if slot.role is None:
                value = slot.literal
            elif slot.role in values:
                value = values[slot.role]
            elif slot.required:
                return None
            else:
                continue
            if slot.name is None:
                args.append(value)
            else:
                kwargs[slot.name] = value
        return args, kwargs

    def summary(self) -> str:
        """Return the call as source text."""
        words = {role: word for word, role in _ROLE_OF_WORD.items()}
        parts = []
        for slot in self.slots:
            text = repr(slot.literal) if slot.role is None else words.get(slot.role, slot.role)
            if slot.role is None or slot.required or slot.role in ("mask", "padding", "causal", "cache", "heads"):
                parts.append(text if slot.name in (None, text) else f"{slot.name}={text}")
        return f"{self.name}({', '.join(parts)})"


def infer_binding(description: TargetDescription) -> CallBinding:
    """Infer the binding from the target's signature."""
    roles = roles_of(description)
    slots = [
        _ArgumentSlot(parameter.name, roles[parameter.name], required=parameter.required)
        for parameter in description.parameters
        if parameter.name in roles
    ]
    return CallBinding(description.name, tuple(slots))


def parse_call(text: str) -> CallBinding:
    """Parse a call given by the user: `attention(q, k, v, mask)` or `Attention(24, 4)(x, mask=mask)`.

    >>> parse_call("attention(q, k, v, n_heads=2)").summary()
    'attention(q, k, v, n_heads=2)'
    """
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise UsageError(f'"{text}" cannot be parsed as a call: {error.msg}.', hint=_CALL_HINT) from None
    if not isinstance(call, ast.Call):
        raise UsageError(f'"{text}" is not a call.', hint=_CALL_HINT)
    constructor_args, function = None, call.func
    if isinstance(function, ast.Call):
        args = [_parse_literal(node) for node in function.args]
        constructor_args = args, {str(keyword.arg): _parse_literal(keyword.value) for keyword in function.keywords}
        function = function.func
    slots = [_parse_slot(None, node) for node in call.args]
    slots += [_parse_slot(keyword.arg, keyword.value) for keyword in call.keywords]
    return CallBinding(ast.unparse(function), tuple(slots), constructor_args)


_CALL_HINT = 'For example: --call "attention(q, k, v, mask)"'


def _parse_slot(name: str | None, node: ast.expr) -> _ArgumentSlot:
    if isinstance(node, ast.Name) and node.id not in ("None", "True", "False"):
        role = _ROLE_OF_WORD.get(node.id, node.id)
        if role not in {_ROLE_OF_WORD.get(word, word) for word in _CALL_WORDS}:
            hint = did_you_mean(node.id, _CALL_WORDS) or f"Known words: {', '.join(_CALL_WORDS)}."
            raise UsageError(f'"{node.id}" in --call is unknown.', hint=hint)
        return _ArgumentSlot(name, role)
    return _ArgumentSlot(name, None, _parse_literal(node))


def _parse_literal(node: ast.expr) -> Arg:
    try:
        return ast.literal_eval(node)
    except ValueError:
        message = f'"{ast.unparse(node)}" in --call is neither a known word nor a literal value.'
        raise UsageError(message, hint=_CALL_HINT) from None


def _role_of(parameter: SignatureParameter, in_constructor: bool = False) -> str | None:
    """Return the role of a parameter; `in_constructor`: of a constructor, where `bias` is a flag and `d` is a size."""
    name = parameter.name.strip("_").lower()
    snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", parameter.name).strip("_").lower()
    role = ROLE_BY_NAME.get(name) or ROLE_BY_NAME.get(snake_case)
    if in_constructor:
        special = {"bias": "flag", "mask": "causal", "use_mask": "causal", "context": "length", "window": "length"}
        return special.get(name) or ("d_head" if role in ("key", "value", "query") else role)
    return None if name == "d" else role


def roles_of(description: TargetDescription, in_constructor: bool = False) -> dict[str, str]:
    """Return roles by parameter name; a required parameter without a known role is an error."""
    roles = {}
    for parameter in description.parameters:
        role = _role_of(parameter, in_constructor)
        if role is None and parameter.required:
            names = (p.name if _role_of(p) else "..." for p in description.parameters if p.required)
            call = f"{description.name}({', '.join(names)})"
            raise InvalidInput(
                f'{description.name} needs "{parameter.name}", and its role cannot be guessed from its name.',
                hint=f'Give the call, with the words {", ".join(_CALL_WORDS)}: --call "{call}"',
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
    words = dict.fromkeys(("visible", "allowed", "may_look", "keep", "valid"), "attend")
    words |= {"hide": "masked", "hidden_mask": "masked"}
    return next((words[name.lower()] for name in names if name.lower() in words), None)
