"""Step 4: showers from the model, with the labels of the test split."""

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def generate(
    model: str,
    fingerprint: str,
    files: list[str],
    split_files: list[str],
    geometry: str,
    cut_gev: float,
    on_bad_event: str,
    per_event: int,
    seed: int,
    generated: str,
) -> str:
    """Generate, or leave showers that stand.

    Args:
        model: Folder of the model.
        fingerprint: The model that train left there; another by now is an error.
        files: HDF5 files whose test split gives the energies and angles.
        split_files: Whole files given to a split, SPLIT=PATTERN each.
        geometry: Geometry that the files do not state, NAME=VALUE,...; empty for none.
        cut_gev: Showers of the files that deposit no more are left out.
        on_bad_event: stop, or skip corrupt events.
        per_event: Showers for each event.
        seed: Of the noise.
        generated: HDF5 file to write.

    Returns:
        SHA-256 of the file.
    """
    from preprocessing.errors import one_line_errors

    with one_line_errors():
        from pathlib import Path

        from preprocessing.splits import SplitRule
        from preprocessing.storage import location, sha256_of_file
        from training.folder import require_model
        from training.generation import generate

        require_model(Path(model), fingerprint)
        generate(
            Path(model),
            [location(file) for file in files],
            Path(generated),
            split="test",
            rule=SplitRule.parse(split_files),
            per_event=per_event,
            seed=seed,
            cut_gev=cut_gev,
            bad_event=on_bad_event,
            geometry=geometry,
        )
        return sha256_of_file(Path(generated))
