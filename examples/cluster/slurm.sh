#!/bin/bash
# A job array of 32 tasks on one file of prompts. Every task gives the same command; a task that is stopped before its time
# is up goes back into the queue and goes on there.
#
#   MODEL=/shared/model INPUT=/shared/prompts.jsonl OUTPUT=/shared/answers.jsonl sbatch examples/cluster/slurm.sh
#   sbatch --dependency=afterok:JOB --wrap 'spillway merge /shared/answers-*-of-00032.jsonl --output /shared/answers.jsonl'
#
#SBATCH --job-name=spillway
#SBATCH --array=0-31
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@180
set -u

spillway generate --model "$MODEL" --input "$INPUT" --output "$OUTPUT" --shard auto --grace 120 --no-progress &
child=$!
trap 'kill -USR1 "$child"' USR1 TERM
status=0
wait "$child" || status=$?
while kill -0 "$child" 2>/dev/null; do  # the signal ended the wait, not the program
  status=0
  wait "$child" || status=$?
done

case $status in
  21) exit 0 ;;  # finished; some lines carry errors
  75) scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" ;;
esac
exit "$status"
