#!/bin/bash
# The part of `fabula reproduce` that wants a GPU, on a bare machine with one card, in three calls of at most ten minutes:
#
#     bash benchmarks/reproduce_gpu.sh train   CARRY OUT 570      trains all systems, JOBS at a time
#     bash benchmarks/reproduce_gpu.sh train   CARRY OUT 570      goes on where the clock stopped the first call
#     bash benchmarks/reproduce_gpu.sh measure CARRY OUT 570      notes what is not trained out, then measures and writes
#
# CARRY/roc.tar.xz is the prepared corpus (a folder `roc`). More words go to `fabula reproduce`. FABULA_COMMIT names the commit
# where there is no repository. DEVICE=cpu with --small and a toy corpus tries it out.
#
# The rule is in the recipes: batch 128, rate 1e-3, patience 3, the best epoch kept. Trainings go by priority: the first seed of
# every system, then seeds 1 and 2. Expected from earlier runs on one H200: LM 60 to 85 updates/s, S2S 45 to 60; latent models
# shared about 37,000 stories/s, ten at a time with batches of 512. With 128 that was not measured, and may be half. 642 updates are
# an epoch. 23 trainings of 12 epochs are 23 million stories: 11 minutes at that rate, 20 at half of it. Patience may take other
# numbers of epochs. `measure` may need a second call; what is done is skipped.
#
# WORK (/tmp/reproduce) keeps weights and resume states while the machine is held. A training that the clock stops resumes at
# its last step; if the machine is given back, it begins again. OUT gets PART.tar.xz (records, texts, logs; no weights and no
# sentence of the corpus) and, after `measure`, the weights of SLDS and LM in 8 bits, in pieces, with their hashes. Unpack PART.tar.xz
# over REPORT at home, and score there: fabula reproduce --data ... --out REPORT --raw test.csv --only score,report
set -u
part=$1 carry=$2 out=$3 seconds=$4
shift 4
begin=$(date +%s)
export PYTHONPATH=src:paper/src:${PYTHONPATH:-} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
work=${WORK:-/tmp/reproduce} report=${WORK:-/tmp/reproduce}/report device=${DEVICE:-cuda}
mkdir -p "$report" "$out"
[ -d "$work/roc" ] || tar xJf "$carry/roc.tar.xz" -C "$work"
[ "$device" = cuda ] && command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d 2>/dev/null
left() { echo $((seconds - ($(date +%s) - begin) - ${RESERVE:-40})); }
latent="slds lds slds-1 slds-10 slds-25 slds-50 slds-1-alpha1 slds-alpha100"
seeds="slds-seed1 lds-seed1 slds-1-seed1 slds-seed2 lds-seed2 slds-1-seed2 slds-10-seed1 slds-25-seed1 slds-50-seed1"
plain="lm s2s lm-seed1 s2s-seed1 lm-seed2 s2s-seed2"
# All units that WHAT names, JOBS processes at a time. INT lets a training keep its step; timeout ends the group.
run() {
    local jobs=$1 what=$2
    shift 2
    [ "$(left)" -gt 5 ] || return
    tr ' ' '\n' <<<"$what" | timeout -s INT -k 20 "$(left)" xargs -P "$jobs" -I WHAT \
        python3 -m fabula reproduce --data "$work/roc" --device "$device" --out "$report" "$@" --only WHAT |
        tee -a "$report/$part.log"
}
prefixed() { for system in $2; do printf '%s/%s ' "$1" "$system"; done | sed 's/ $//'; }
if [ "$part" = train ]; then
    run "${JOBS:-16}" "$(prefixed train "$latent $plain $seeds")" "$@"
else
    run 8 "$(prefixed train "$latent $plain $seeds")" "$@" --as-it-stands
    # The most important first: likelihoods, the paper's infilling and control, the closer bounds, then further seeds.
    run "${MEASURE_JOBS:-5}" "$(prefixed likelihood "$latent $plain $seeds")" "$@"
    run "${MEASURE_JOBS:-5}" "$(prefixed write "$latent s2s") $(prefixed sample "$latent lm s2s")" "$@"
    run "${MEASURE_JOBS:-5}" "$(prefixed bound "slds lds s2s slds-1")" "$@"
    run "${MEASURE_JOBS:-5}" "$(prefixed sample "$seeds ${plain#lm s2s }") $(prefixed write "$seeds s2s-seed1 s2s-seed2")" "$@"
    for system in slds lm; do
        [ -f "$report/runs/$system/config.json" ] && python3 benchmarks/eight_bits.py "$report/runs/$system" "$work/$system-8bit" &&
            tar c -C "$work" "$system-8bit" | split -b 15M - "$out/$system-8bit.tar."
    done
    (cd "$out" && sha256sum ./*-8bit.tar.* >"$report/weights.sha256" 2>/dev/null)
fi
tar cJf "$out/$part.tar.xz" -C "$report" --exclude runs --exclude toy .
echo "$(find "$report/records" -name '*.json' | wc -l) records, $(stat -c %s "$out/$part.tar.xz") bytes, $(($(date +%s) - begin)) s"
