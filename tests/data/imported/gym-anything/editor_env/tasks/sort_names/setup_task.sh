#!/bin/bash
# MARK-HIDDEN-SETUP
set -e
printf 'Katherine\nGrace\nAda\n' > /home/ga/Documents/names.txt
date +%s > /tmp/task_start_time.txt
