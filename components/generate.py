"""Step 4: showers from the model, and from the incumbent, with the labels of the test split."""

from typing import NamedTuple

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def generate(
    output: str,
    fingerprint: str,
    incumbent: str,
    files: list[str],
    dataset: str,
    split_files: list[str],
    geometry: str,
    cut_gev: float,
    on_bad_event: str,
    per_event: int,
    seed: int,
) -> NamedTuple(  # type: ignore[valid-type]
    "Generated", [("fingerprint", str), ("incumbent", str)]
):
    """Generate, or leave showers that stand.

    Args:
        output: Folder of the run: the showers come to OUTPUT/generated.h5, the incumbent's to OUTPUT/incumbent.h5.
        fingerprint: The model that train left there; another by now is an error.
        incumbent: The incumbent's model that train left there; empty without one.
        files: HDF5 files whose test split gives the energies and angles.
        dataset: Folder or gs:// address of their dataset, which remembers their hashes.
        split_files: Whole files given to a split, SPLIT=PATTERN each.
        geometry: Geometry that the files do not state, NAME=VALUE,...; empty for none.
        cut_gev: Showers of the files that deposit no more are left out.
        on_bad_event: stop, or skip corrupt events.
        per_event: Showers for each event.
        seed: Of the noise.

    Returns:
        SHA-256 of the file, and of the incumbent's, which is empty without one.
    """
    from components.step import step

    with step():
        from pathlib import Path

        from calopipe.showers.selection import Selection
        from calopipe.showers.splits import SplitRule
        from calopipe.storage import location, sha256_of_file
        from training.folder import require_model
        from training.generation import generate

        selection = Selection(
            split="test",
            rule=SplitRule.parse(split_files),
            cut_gev=cut_gev,
            bad_event=on_bad_event,
            geometry=geometry,
            memory=location(dataset),
        )
        hashes = {}
        # the model last: what is said of it is what this step did
        for model, showers, expected in (("incumbent", "incumbent", incumbent), ("model", "generated", fingerprint)):
            if not expected:
                continue
            require_model(Path(output) / model, expected)
            generate(
                Path(output) / model,
                [location(file) for file in files],
                Path(output) / f"{showers}.h5",
                selection=selection,
                per_event=per_event,
                seed=seed,
                extrapolate=model == "incumbent",
            )
            hashes[model] = sha256_of_file(Path(output) / f"{showers}.h5")
        return (hashes["model"], hashes.get("incumbent", ""))
