"""The commands that README and guides show."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parent.parent


def guide(document: str) -> str:
    return (_ROOT / document).read_text()


def commands(text: str) -> list[str]:
    """The commands of the `bash` blocks of `text`, with continued lines joined and comments left out, as in a shell."""
    lines = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).replace("\\\n", "").splitlines()
    return [line.partition(" #")[0].strip() for line in lines if line.strip() and not line.strip().startswith("#")]
