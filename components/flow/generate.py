"""Step 3 of a flow: roll-outs of the model from the first frame of each simulation of the test split."""

from kfp import dsl

from components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def generate_flow(
    output: str,
    fingerprint: str,
    files: list[str],
    split_files: list[str],
    rollout_steps: int,
    model_file: str,
    model: dsl.Input[dsl.Model],
    rollouts: dsl.Output[dsl.Dataset],
) -> str:
    """Write OUTPUT/rollouts, a flow file and a movie for each simulation; roll-outs that are there are kept.

    Args:
        fingerprint: The model that train wrote; it is an error if another is there now.
        model_file: The user's file that states the model, as train was given it; no other runs.
        files: HDF5 files of simulations.

    Returns:
        A fingerprint of the roll-outs' files.
    """
    from components.step import describe, require_models, working

    with working(output, "generate", "model/*", "rollouts/*") as run:
        from calopipe.events.splits import SplitRule
        from training.rollout.held_out import roll_out_held_out

        require_models(run, model_file, model=fingerprint)
        content = roll_out_held_out(run / "model", files, run / "rollouts", SplitRule.parse(split_files), rollout_steps)
        made_from = model.metadata.get("fingerprint", fingerprint)
        describe(rollouts, f"{output}/rollouts", fingerprint=content, made_from=made_from)
        return content
