#!/bin/sh
# Says what to try while `make run` serves: `scripts/what_next.sh BIN SOCKET`.
bin=$1 socket=$2
cat <<END
Serving at $socket, until ^C. In another terminal:

  export RELAYD_SOCKET="$socket" PATH="$bin:\$PATH"
  seq 5 | relayd record tour --create       # five lines, each on disk before it counts
  relayd follow tour                        # everything from the start, then live; ^C ends it
  relayd status tour
  relayd demo                               # a daemon of its own, killed again and again; nothing lost

Record more from a third terminal and watch it arrive. Stop the daemon here, even with kill -9, and
start it again with \`make run\`: the follower reconnects and misses nothing.

END
