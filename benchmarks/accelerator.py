"""How fast this machine's accelerator does training steps and generations, and whether the results are the same.

    python benchmarks/accelerator.py DIR [DIR ...] [--turns 10]

Each DIR is a folder that `exported_step.py` wrote. The program needs only JAX and NumPy. Variables stay on the device;
the arguments of each call come from the host. Times are medians of the turns, after two calls that are not counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax._src.interpreters import mlir
from jax.extend.mlir import ir

jax.config.update("jax_enable_x64", val=True)  # the counter of steps has 64 bits


def program_of(folder: Path, inputs: list[Any], about: dict[str, Any]) -> Any:
    """The program as a function of (arguments, variables). It returns the result and the changed variables."""
    called = exported(folder / "program.mlir.gz", inputs, about["arguments"], about)

    def program(arguments: list[jax.Array], variables: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        result, *new = called.call(*arguments, *variables)
        after = list(variables)
        for number, value in zip(about["changed"], new, strict=True):
            after[number] = value
        return result, after

    return jax.jit(program, donate_argnums=1)


def exported(file: Path, inputs: list[Any], arguments: int, about: dict[str, Any]) -> jax.export.Exported:
    """The program in `file`. Its inputs are `arguments` arguments, then variables. It returns the result and the
    changed variables.
    """
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in inputs]
    variables = shapes[arguments:]
    shape, dtype = about["result"]
    outputs = [jax.ShapeDtypeStruct(tuple(shape), dtype), *(variables[number] for number in about["changed"])]

    def alike(*_: Any) -> Any:
        return tuple(jnp.zeros(each.shape, each.dtype) for each in outputs)

    stand_in = jax.export.export(jax.jit(alike, keep_unused=True))(*shapes)
    return dataclasses.replace(stand_in, mlir_module_serialized=stablehlo(file))


def stablehlo(file: Path) -> bytes:
    """The program without the operations that copy results: TensorFlow writes them, StableHLO does not have them."""
    with mlir.make_ir_context():
        module = ir.Module.parse(gzip.decompress(file.read_bytes()))
        copies: list[Any] = []

        def find(operation: Any) -> Any:
            if operation.name == "mhlo.copy":
                copies.append(operation)
            return ir.WalkResult.ADVANCE

        module.operation.walk(find)
        for copy in copies:
            copy.results[0].replace_all_uses_with(copy.operands[0])
            copy.erase()
        return mlir.module_to_bytecode(module)


def arrays(file: Path) -> list[Any]:
    with np.load(file) as stored:
        return [stored[name] for name in sorted(stored)]


def variables_of(folder: Path, about: dict[str, Any]) -> list[Any]:
    """The variables before the first call, or small random numbers if none were kept."""
    if (file := folder / "before.npz").exists():
        return arrays(file)
    random = np.random.default_rng(1)
    return [np.asarray(0.02 * random.standard_normal(shape), dtype) for _, shape, dtype in about["variables"]]


def apart(found: Any, expected: Any) -> float:
    """The largest difference, divided by the largest expected number."""
    difference = np.max(np.abs(np.asarray(found, np.float64) - expected), initial=0.0)
    return float(difference / np.max(np.abs(np.asarray(expected, np.float64)), initial=1e-30))


def run(folder: Path, turns: int) -> None:
    """Compare with the results of calls on the other machine, then time calls, and print both."""
    about = json.loads((folder / "about.json").read_text())
    width = about["arguments"]
    flat, before = arrays(folder / "calls.npz"), variables_of(folder, about)
    calls = [flat[start : start + width] for start in range(0, len(flat), width)]
    began = time.perf_counter()
    variables = [jnp.asarray(each) for each in before]
    program = program_of(folder, calls[0] + before, about).lower(calls[0], variables).compile()
    print(f"\n{folder.name}: compiled in {time.perf_counter() - began:.0f} s")
    for number, expected in enumerate(arrays(folder / "results.npz")):
        result, variables = program(calls[number], variables)
        print(f"call {number}: result apart by {apart(result, expected):.1e} of its largest number")
        if expected.size < 32:  # losses by phase; each comes after the updates of the phases before it
            each = [f"{apart(one, other):.0e}" for one, other in zip(np.asarray(result), expected, strict=True)]
            print(f"  one by one: {' '.join(each)}")
    for number, expected in zip(about["changed"], arrays(folder / "after.npz"), strict=False):
        if (difference := apart(variables[number], expected)) > 1e-3:
            print(f"  {about['variables'][number][0]} {expected.shape}: apart by {difference:.1e}")
    seconds, copied = [], []
    for turn in range(turns + 2):
        began = time.perf_counter()
        result, variables = program(calls[turn % len(calls)], variables)
        result.block_until_ready()
        seconds.append(time.perf_counter() - began)
        np.asarray(result)
        copied.append(time.perf_counter() - began - seconds[-1])
    median = statistics.median(seconds[2:])
    memory = program.memory_analysis()
    gigabytes = (memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes) / 1e9
    print(
        f"| {folder.name} | {1e3 * median:.2f} ({1e3 * min(seconds[2:]):.2f}-{1e3 * max(seconds[2:]):.2f}) ms "
        f"| {about['showers'] / median:.0f} showers/s | result copied {1e3 * statistics.median(copied[2:]):.2f} ms "
        f"| {gigabytes:.2f} GB |",
        flush=True,
    )


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    command.add_argument(
        "--turns", type=int, default=10, metavar="N", help="calls that are timed (default %(default)s)"
    )
    options = command.parse_args()
    print(jax.devices())
    for folder in options.folders:
        try:
            run(folder, options.turns)
        except Exception as error:  # the other programs must still run
            print(f"{folder.name}: {str(error)[:500]}", flush=True)


if __name__ == "__main__":
    main()
