"""What Kubeflow would change in the parameters on their way to a step."""

import re
from collections.abc import Iterator, Mapping

from calopipe.errors import InputError

# Of a step's command, then of a run's parameters; [[CurrentTime.2006]] states a form.
_PLACEHOLDER = re.compile(r"\{\{|\[\[(RunUUID|Index|CurrentTime|ScheduledTime)[].]")


def require_plain(parameters: Mapping[str, object]) -> None:
    """Raise InputError where a text in one of `parameters` holds a placeholder.

    Kubeflow puts the parameters of a step into its command first and fills in the placeholders of that command then,
    those in the parameters too: `{{$}}` in the name of a file would become a document of hundreds of characters. Its
    server fills in placeholders such as `[[CurrentTime]]` when a run begins. No other `[[` is one, as in `run[[]1].h5`.
    """
    for name, value in parameters.items():
        for text in _texts(value):
            if found := _PLACEHOLDER.search(text):
                raise InputError(
                    f"{name} {text}: holds {found[0]}, in place of which Kubeflow puts something else; give it another "
                    "name"
                )


def _texts(value: object) -> Iterator[str]:
    """Every text in a parameter, which is one, or a list or a dictionary with texts in it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
