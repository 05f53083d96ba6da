"""`peasy import`: imports a Hugging Face model as a peasy checkpoint."""

import shlex

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags


def import_(source: str, *, name: str | None = None, flags: Flags = Flags()) -> Answer:
    """Import a Hugging Face model as a peasy checkpoint with a name.

    Reads only safetensors and JSON files; weights that do not match the config are rejected.

    For example:

        peasy import ./my-hugging-face-folder --name mine
        peasy import sentence-transformers/all-MiniLM-L6-v2 --yes

    Args:
        source: Hugging Face folder, hub id, or peasy checkpoint.
        name: Name of the imported model; default: the name of the source.
    """
    from peasy.workbench.importing import import_model

    result = import_model(source, name=name, offline=flags.offline, ask=asking(flags))
    quoted = shlex.quote(result.name)
    return Answer(
        result, next=[f"peasy models {quoted}", f'peasy tokenize {quoted} "Easy peasy"'], files=[result.folder]
    )
