"""relayd: a durable relay between workers and controllers, over a Unix socket."""
