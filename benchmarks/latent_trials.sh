#!/usr/bin/env bash
# Trials of what fills Z: five epochs each, measured on the validation split (docs/log.md has the table, and those that
# did not help: their settings are retired).
#   PYTHONPATH=src benchmarks/latent_trials.sh prepared/roc runs cuda [DEADLINE] [EXTRA CHANGES, as :key=value...]
set -uo pipefail
data=$1 out=$2 device=${3:-cuda} deadline=${4:-540} extra=${5:-}
base="recipes/slds.toml:train.epochs=5$extra"
python3 "$(dirname "$0")/train_systems.py" --data "$data" --out "$out" --device "$device" --deadline "$deadline" \
  --samples 10 --split valid --at-once 5 \
  "recipes/lm-1024.toml:train.epochs=5$extra" \
  "recipes/lm-1024.toml:train.epochs=5:train.swap_names=0.5$extra" \
  "$base" \
  "$base:objective.whole_stories=0.5" \
  "$base:objective.whole_stories=0.5:objective.other_words=0.5" \
  "$base:objective.whole_stories=0.5:objective.target_kl=14.0" \
  "$base:train.swap_names=0.5" \
  "$base:model.dynamics.latent=128" \
  "$base:objective.kl_warmup=4.0" \
  "$base:objective.posterior=\"filtering\":objective.evidence_dropout=0.0" \
  "$base:model.dynamics.noise=\"full\""
