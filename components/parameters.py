"""What Kubeflow would change in the parameters on their way to a step."""

from collections.abc import Iterator, Mapping

from preprocessing.errors import InputError


def require_plain(parameters: Mapping[str, object]) -> None:
    """Raise InputError where a text in one of `parameters` holds a placeholder.

    Kubeflow puts the parameters of a step into its command first and fills in the placeholders of that command then,
    those in the parameters too: `{{$}}` in the name of a file would become a document of hundreds of characters.
    """
    for name, value in parameters.items():
        for text in _texts(value):
            if "{{" in text:
                raise InputError(
                    f"{name} {text}: holds {{{{, in place of which Kubeflow puts something else; give it another name"
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
