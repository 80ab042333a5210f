#!/bin/sh
# The pipeline and its strategies on one machine with a GPU, in less than eight minutes; see
# pipeline.py. It has not been run on a GPU by the authors, who had none at hand; on a CPU it has:
#
#   sh benchmarks/gpu/pipeline.sh --device cpu --quick
set -eu
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "${PYTHON:-python}" benchmarks/gpu/pipeline.py "$@"
