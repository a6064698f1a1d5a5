#!/bin/bash
# 8 shards by GNU parallel, two at a time, on this machine or on those of HOSTS ("host1,host2"). The same command goes on
# after an interruption. Each run plans with the memory that is free when it starts: give two on one machine their parts.
#   MODEL=model INPUT=prompts.jsonl OUTPUT=answers.jsonl examples/cluster/parallel.sh
set -u
parallel --jobs 2 ${HOSTS:+--sshlogin "$HOSTS"} --termseq TERM,90000,KILL,25 \
  spillway generate --model "$MODEL" --input "$INPUT" --output "$OUTPUT" --shard {}/8 --grace 60 --quiet \
  ${MEMORY:+--cpu-memory "$MEMORY"} ::: 0 1 2 3 4 5 6 7
spillway merge "${OUTPUT%.*}"-*-of-00008."${OUTPUT##*.}" --output "$OUTPUT"
