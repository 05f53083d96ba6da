"""`peasy import`."""

import shlex

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags


def import_(source: str, *, name: str | None = None, flags: Flags = Flags()) -> Answer:
    """Take in a model: it becomes a checkpoint of peasy, under a name.

    Reads safetensors and JSON and nothing else; whatever does not fit its own description is refused.

    For example:

        peasy import ./my-hugging-face-folder --name mine
        peasy import sentence-transformers/all-MiniLM-L6-v2 --yes

    Args:
        source: A Hugging Face folder, a hub id, or a checkpoint of peasy.
        name: The name to keep it under; else the source's own.
    """
    from peasy.workbench.importing import import_model

    result = import_model(source, name=name, offline=flags.offline, ask=asking(flags))
    known = shlex.quote(result.name)
    return Answer(result, next=[f"peasy models {known}", f'peasy tokenize {known} "Easy peasy"'], files=[result.folder])
