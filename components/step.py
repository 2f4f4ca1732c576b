"""What the body of every step runs in."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from calopipe.errors import one_line_errors


@contextmanager
def step() -> Iterator[None]:
    """Report errors as `one_line_errors` does, and let no other user change what the step writes."""
    keep_from_others()
    with one_line_errors():
        yield


def keep_from_others() -> None:
    """Let no other user change what this process writes if its umask is 0, which is what Kubeflow starts steps with.

    Any other umask stays as it is.
    """
    before = os.umask(0o022)
    if before:
        os.umask(before)
