"""Names that the server of Kubeflow Pipelines can store.

They are checked here since the server notices late: it fails (500), and leaves the half of a schedule that starts runs.
"""

from __future__ import annotations

import re

from calopipe.errors import InputError

EXPERIMENT, VERSION, SCHEDULE = 128, 127, 255  # bytes
RUN = 255 - len(" 2026-01-02 03-04-05 0a1b")  # runs.submit adds that
PIPELINE = VERSION  # 128, but the first version has its name
UNTIL_A_TIME = VERSION - len(" 2026-01-02 03-04-05")  # uploads.upload adds that to name a version


def require_name(option: str, name: str, most: int) -> None:
    """Raise InputError unless the server can store the `name` that `option` gives, of `most` bytes in UTF-8."""
    size = len(name.encode())
    shown = name if size <= most else f"{name[:40]}..."
    if not 1 <= size <= most:
        raise InputError(f"{option} {shown!r}: {size} bytes long, expected 1 to {most}; give another name")
    # From the characters that this keeps, the server makes the name of a schedule in Kubernetes.
    if re.sub("[^a-z0-9-]", "", name.lower()).startswith("-"):
        raise InputError(f"{option} {shown!r}: expected a letter (a to z) or digit before the '-'; give another name")
