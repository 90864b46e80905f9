"""``chainapi completion``: the script that lets a shell complete commands, options and names of routes."""

from __future__ import annotations

import re
from typing import Literal

from chainapi.cli.common import Hidden, app

__all__ = ["completion"]


def completion(shell: Literal["bash", "zsh", "fish"], /, *, terminal: Hidden) -> None:
    """Print the script that lets a shell complete this command, names of routes included.

    For bash: `source <(chainapi completion bash)`; the same for zsh, after compinit.

    For fish: `chainapi completion fish | source`.

    Args:
        shell: The shell that reads it.
        terminal: Where the command writes.

    """
    script = app.generate_completion(prog_name="chainapi", shell=shell)
    if shell == "zsh" and (function := re.search(r"^(\w+)\(\) {$", script, re.MULTILINE)):
        # It is made for a file in fpath, where zsh finds out by itself what it completes.
        script += f"\ncompdef {function[1]} chainapi\n"
    terminal.out.write(script)
