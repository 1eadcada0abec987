#!/bin/sh
# Ask the flow runs of a worker (its process number is $1) to stop in order, once, and wait until they have ended.
pkill -TERM --parent "$1" || exit 0
while pgrep --parent "$1" > /dev/null; do
    sleep 0.2
done
