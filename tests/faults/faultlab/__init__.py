"""What tests/faults/run is made of: workloads against real processes, faults, recorded histories, judges.

    fault_run.py        one run, from its start to the judges
    client.py           a client process: one workload, one history file (run as a program)
    workloads.py        what such a client repeats; asking.py: an operation that is tried again; front_door.py: as libraries for Redis do
    users.py            users and rights, for runs with --users
    history.py          what happened: events as JSON lines, operations paired from them, Jepsen's EDN; porcupine.py: for Porcupine
    proxy.py            TCP proxies on loopback: links between nodes that can be cut, writes to the storage that can be held
    namespaces.py       each node in a network namespace of its own, where that is allowed
    nemesis.py          the faults, each with a start and a stop, drawn from the seed; nemesis_members.py: changes of members, backups
    members.py          the members that the cluster should have
    bits.py             flips one bit in a file
    checkers.py         judges: pure functions from operations to anomalies; judges.py: those of one workload each
    linear.py           the linearizability judge
    subscriptions.py    the judge of the events that subscribers got
    report.py           one HTML page a run; report_story.py: an anomaly as a story; report_plots.py: the pictures
    evidence.py         what is kept for explaining an anomaly
"""
