#!/usr/bin/env bash
# Trials of what fills Z: five epochs each, measured on the validation split (docs/log.md has the table).
#   PYTHONPATH=src benchmarks/latent_trials.sh prepared/roc runs cuda [DEADLINE] [EXTRA CHANGES, as :key=value...]
set -uo pipefail
data=$1 out=$2 device=${3:-cuda} deadline=${4:-540} extra=${5:-}
base="recipes/slds.toml:train.epochs=5$extra"
link="$base:objective.whole_stories=0.5:objective.hide_tags=0.5:objective.own_gain=0.0"
strong="$link:objective.link_gain=3.0"
python3 "$(dirname "$0")/train_systems.py" --data "$data" --out "$out" --device "$device" --deadline "$deadline" \
  --samples 10 --split valid --at-once 5 \
  "recipes/lm-1024.toml:train.epochs=5$extra" \
  "recipes/lm-1024.toml:train.epochs=5:train.swap_names=0.5$extra" \
  "$base" \
  "$base:objective.hide_tags=1.0" \
  "$base:objective.whole_stories=0.5" \
  "$link" \
  "$strong" \
  "$strong:objective.other_words=0.5" \
  "$strong:objective.target_kl=14.0" \
  "$strong:objective.contrast=1.0" \
  "$base:train.swap_names=0.5" \
  "$strong:model.language.history_dropout=0.2" \
  "$strong:model.dynamics.latent=128" \
  "$base:objective.own_words=0.5" \
  "$base:objective.kl_warmup=4.0" \
  "$base:model.language.word_dropout=0.2" \
  "$base:objective.posterior=\"filtering\":objective.evidence_dropout=0.0" \
  "$strong:model.dynamics.noise=\"full\""
