"""``chainapi completion``: shell completion of commands, options and routes."""

from __future__ import annotations

import re
from typing import Literal

from chainapi.cli.common import Hidden, app

__all__ = ["completion"]


def completion(shell: Literal["bash", "zsh", "fish"], /, *, terminal: Hidden) -> None:
    """Print a shell script that completes commands, options and names of routes.

    For bash: `source <(chainapi completion bash)`; the same for zsh, after compinit.

    For fish: `chainapi completion fish | source`.

    Args:
        shell: The shell that runs the script.
        terminal: The streams of the command.

    """
    script = app.generate_completion(prog_name="chainapi", shell=shell)
    if shell == "zsh" and (function := re.search(r"^(\w+)\(\) {$", script, re.MULTILINE)):
        # The script is meant for a file in fpath, whose name shows zsh the command.
        script += f"\ncompdef {function[1]} chainapi\n"
    terminal.out.write(script)
