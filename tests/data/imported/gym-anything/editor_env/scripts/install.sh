#!/bin/bash
apt-get install -y mousepad
