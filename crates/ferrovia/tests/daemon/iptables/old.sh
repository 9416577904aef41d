#!/bin/sh
# Stands in for the iptables tools, under their names, and is too old.
echo "${0##*/} v1.4.21"
