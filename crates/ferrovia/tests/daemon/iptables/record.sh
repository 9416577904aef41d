#!/bin/sh
# Stands in for the iptables tools, under their names: notes the call, then becomes the tool of that name further on in the path.
name=${0##*/}
echo "$name $*" >>"$RECORD"
PATH=${PATH#*:}
exec "$name" "$@"
