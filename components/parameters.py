"""Text in parameters that Kubeflow would replace on the way to a step."""

import re
from collections.abc import Mapping

from calopipe.errors import InputError

# Of a step's command, then of a run's parameters; [[CurrentTime.2006]] states a form.
_PLACEHOLDER = re.compile(r"\{\{|\[\[(RunUUID|Index|CurrentTime|ScheduledTime)(\..*?)?\]\]")


def require_plain(parameters: Mapping[str, object]) -> None:
    """Raise InputError if a text in `parameters` holds a placeholder.

    Kubeflow writes the parameters of a step into its command and then fills in the placeholders of that command, also
    those in the parameters: `{{$}}` in the name of a file would become a document of hundreds of characters. Its server
    fills in placeholders such as `[[CurrentTime]]` when a run begins. Any other `[[` stays, as in `run[[]1].h5`.
    """
    for name, value in parameters.items():
        for text in value if isinstance(value, list) else [value]:
            if mark := _PLACEHOLDER.search(str(text)):
                raise InputError(
                    f"{name} {text}: holds {mark[0]}, which Kubeflow replaces by something else; give it another name"
                )
