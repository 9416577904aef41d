#!/bin/sh
# Stands in for the iptables tools, under their names. As long as the file $KILL is there, a restoring tool gets half of its input, is killed
# when the first of it is in the kernel, and this goes the same way.
name=${0##*/}
PATH=${PATH#*:}
case $name in
*-restore) ;;
*) exec "$name" "$@" ;;
esac
[ -e "$KILL" ] || exec "$name" "$@"
input=$(cat)
lines=$(echo "$input" | wc -l)
mkfifo "$KILL.$$"
"$name" "$@" <"$KILL.$$" &
tool=$!
exec 3>"$KILL.$$"
rm "$KILL.$$"
echo "$input" | head -n $((lines / 2)) >&3
tries=0
until "${name%-restore}-save" | grep -q KUBE-PROXY-CANARY || [ $tries -ge 200 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
echo "$name" >>"$KILL"
kill -9 $tool
kill -9 $$
