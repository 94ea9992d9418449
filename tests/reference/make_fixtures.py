"""Make the references under tests/fixtures/models, tests/fixtures/adapters, tests/fixtures/optimizers, tests/fixtures/ops, tests/fixtures/quantised and tests/fixtures/configs.

    python3 -m venv venv
    venv/bin/pip install --extra-index-url https://download.pytorch.org/whl/cpu -r tests/reference/requirements.txt
    venv/bin/python tests/reference/make_fixtures.py [CASE...]     # no CASE: all, with ops, quantised and published

Without the extra index, pip takes PyTorch with CUDA, which is gigabytes.

The outputs are committed: only who changes a reference needs Python. Seeds fix every input. The recorded numbers
may differ in their last digits between processors, as fp32 products do.
"""

import pathlib
import sys

import torch

import adapter_cases
import generated_cases
import model_cases
import op_cases
import optimizer_cases
import published_configs
import quantised_cases

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    wanted = sys.argv[1:]
    known = {"ops", "quantised", "published"} | model_cases.names() | adapter_cases.names() | optimizer_cases.names()
    if not known.issuperset(wanted):
        sys.exit(f"no such case among {', '.join(wanted)}; there are {', '.join(sorted(known))}")
    model_cases.write_batches(FIXTURES / model_cases.BATCHES)
    model_cases.write(FIXTURES, wanted)
    adapter_cases.write(FIXTURES, wanted)
    optimizer_cases.write(FIXTURES, wanted)
    generated_cases.write(FIXTURES / "models", wanted)
    if not wanted or "quantised" in wanted:
        quantised_cases.write(FIXTURES / "quantised")
    if not wanted or "ops" in wanted:
        op_cases.write(FIXTURES / "ops")
    if not wanted or "published" in wanted:
        published_configs.write(FIXTURES / "configs")


if __name__ == "__main__":
    main()
