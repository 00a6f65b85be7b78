"""A cluster that keeps its leader while any of its nodes, or all of them, stand still for many seconds, as on a busy machine, and that
has its leader as soon as any other."""

SILENCE_MS, FIRST_MS, HEARTBEAT_MS = 30000, 400, 40


def start_steady(cluster):
    """One node begins with a short election time-out, so that there is a leader at once. When another leads it begins anew, with the
    long one that the others have."""
    first, leader = cluster.nodes[:2]
    for node in cluster.nodes:
        node.extra = node.extra + ['--heartbeat-ms', HEARTBEAT_MS, '--election-ms', FIRST_MS if node is first else SILENCE_MS]
    cluster.start()
    cluster.make_leader(leader)
    first.terminate()
    first.extra = first.extra[:-1] + [SILENCE_MS] # each has options of its own beside this
    first.start()
    cluster.wait_serving(first)
