"""Similarity explained: the cosine of two sentence embeddings as a sum over word pairs."""

from peasy.checkpoint.loaded_model import check_ids
from peasy.commands.analysis_result import AnalysisResult
from peasy.commands.load import LoadedModel
from peasy.inspection.label import Tokens
from peasy.inspection.words import label_ids, label_tokens
from peasy.views.similarity import similarity_document


def similarity_by_words(loaded: LoadedModel, first: str, second: str) -> AnalysisResult:
    """Explain the cosine similarity of two sentences by word pairs, for an encoder with mean pooling."""
    from peasy.inspection.similarity import explain_similarity

    similarity = explain_similarity(loaded.model, _tokens(loaded, first), _tokens(loaded, second), loaded.name)
    return AnalysisResult(similarity, lambda: similarity_document(similarity))


def _tokens(loaded: LoadedModel, text: str) -> Tokens:
    """Return the tokens that `embed` reads; a text that is too long is truncated."""
    tokenizer = loaded.require_tokenizer()
    encoding = tokenizer.encode(text)
    ids = loaded.truncate_ids(list(encoding.ids))
    check_ids([ids], loaded.model.config.vocab_size)
    if ids == list(encoding.ids):
        return label_tokens(encoding, tokenizer)
    return label_ids(ids, [tokenizer.piece(id) for id in ids], text)
