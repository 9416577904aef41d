#!/bin/sh
# Stands in for the iptables tools, under their names. What the file $FAULT says happens to whoever wants rules to be written: it is refused
# (`exit 1`, `exit 4`), the tool is killed, or it does nothing until told otherwise.
name=${0##*/}
PATH=${PATH#*:}
fault=
case $name in
*-restore) fault=$(cat "$FAULT" 2>/dev/null) ;;
esac
case $fault in
exit*)
    echo "$name: this is a test" >&2
    $fault
    ;;
kill) kill -9 $$ ;;
hang) while [ "$(cat "$FAULT")" = hang ]; do sleep 0.1; done ;;
esac
exec "$name" "$@"
