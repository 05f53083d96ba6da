"""Why two sentences are alike: the cosine of an encoder, split into pairs of words that add up to it."""

from peasy.looking.label import Tokens
from peasy.looking.words import tokens_of, tokens_of_ids
from peasy.views.similarity import similarity_document
from peasy.workbench.embedding import check_ids, cut_ids
from peasy.workbench.finding import Finding
from peasy.workbench.load import LoadedModel


def explain_why(loaded: LoadedModel, first: str, second: str) -> Finding:
    """Which words make two sentences alike, for an encoder that pools by the mean."""
    from peasy.looking.similarity import explain_similarity

    found = explain_similarity(loaded.model, _tokens(loaded, first), _tokens(loaded, second), loaded.name)
    return Finding(found, lambda: similarity_document(found))


def _tokens(loaded: LoadedModel, text: str) -> Tokens:
    """The very tokens that `embed` reads: a text that is too long is cut at its end."""
    tokenizer, config = loaded.need_tokenizer(), loaded.model.config
    encoding = tokenizer.encode(text)
    longest = getattr(config, "longest", None) or getattr(config, "context", None)
    ids = cut_ids(list(encoding.ids), tokenizer, longest)
    check_ids([ids], config.vocabulary)
    if ids == list(encoding.ids):
        return tokens_of(encoding, tokenizer)
    return tokens_of_ids(ids, [tokenizer.piece(id) for id in ids], text)
