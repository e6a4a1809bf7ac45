#!/bin/bash
cp /home/ga/Documents/names.txt /tmp/result.txt
