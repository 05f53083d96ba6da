"""Similarity explained: the cosine of two sentence embeddings as a sum over word pairs."""

from peasy.looking.label import Tokens
from peasy.looking.words import tokens_of, tokens_of_ids
from peasy.views.similarity import similarity_document
from peasy.workbench.embedding import check_ids, cut_ids
from peasy.workbench.finding import Finding
from peasy.workbench.load import LoadedModel


def explain_why(loaded: LoadedModel, first: str, second: str) -> Finding:
    """Explain the cosine similarity of two sentences by word pairs, for an encoder with mean pooling."""
    from peasy.looking.similarity import explain_similarity

    similarity = explain_similarity(loaded.model, _tokens(loaded, first), _tokens(loaded, second), loaded.name)
    return Finding(similarity, lambda: similarity_document(similarity))


def _tokens(loaded: LoadedModel, text: str) -> Tokens:
    """Return the tokens that `embed` reads; a text that is too long is truncated."""
    tokenizer, config = loaded.need_tokenizer(), loaded.model.config
    encoding = tokenizer.encode(text)
    max_length = getattr(config, "longest", None) or getattr(config, "context", None)
    ids = cut_ids(list(encoding.ids), tokenizer, max_length)
    check_ids([ids], config.vocabulary)
    if ids == list(encoding.ids):
        return tokens_of(encoding, tokenizer)
    return tokens_of_ids(ids, [tokenizer.piece(id) for id in ids], text)
