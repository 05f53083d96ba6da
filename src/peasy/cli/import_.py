"""`peasy import`: imports a Hugging Face model as a peasy checkpoint."""

import shlex

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.confirm import confirm_callback


def import_(source: str, *, name: str | None = None, flags: Flags = Flags()) -> CommandOutput:
    """Import a Hugging Face model as a peasy checkpoint with a name.

    Reads only safetensors and JSON files; weights that do not match the config are rejected.

    For example:

        peasy import ./my-hugging-face-folder --name mine
        peasy import sentence-transformers/all-MiniLM-L6-v2 --yes

    Args:
        source: Hugging Face folder, hub id, or peasy checkpoint.
        name: Name of the imported model; default: the name of the source.
    """
    from peasy.commands.importing import import_model

    result = import_model(source, name=name, offline=flags.offline, confirm=confirm_callback(flags))
    quoted = shlex.quote(result.name)
    return CommandOutput(
        result, suggestions=[f"peasy models {quoted}", f'peasy tokenize {quoted} "Easy peasy"'], files=[result.folder]
    )
