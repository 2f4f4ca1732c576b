"""What Kubeflow would change in the parameters on their way to a step."""

from collections.abc import Mapping

from preprocessing.errors import InputError


def require_plain(parameters: Mapping[str, object]) -> None:
    """Raise InputError where a text among `parameters`, or in a list of them, holds a placeholder.

    Kubeflow puts the parameters of a step into its command first and fills in the placeholders of that command then,
    those in the parameters too: `{{$}}` in the name of a file would become a document of hundreds of characters.
    """
    for name, value in parameters.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and "{{" in text:
                raise InputError(
                    f"{name} {text}: holds {{{{, in place of which Kubeflow puts something else; give it another name"
                )
