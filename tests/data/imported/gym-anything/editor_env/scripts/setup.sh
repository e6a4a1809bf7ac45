#!/bin/bash
# MARK-HIDDEN-SETUP
mkdir -p /home/ga/Documents
