"""What tests/faults/run is made of: workloads against real processes, faults, recorded histories, judges.

    history.py   what happened: events as JSON lines, operations paired from them, Jepsen's EDN
    client.py    a client process: one workload, one history file (run as a program)
    proxy.py     TCP proxies on loopback: links between nodes that can be cut, writes to the storage that can be held
    spaces.py    each node in a network namespace of its own, where that is allowed
    nemesis.py   the faults, each with a start and a stop, drawn from the seed
    bits.py      flips one bit in a file
    checkers.py  judges: pure functions from operations to anomalies
    linear.py    the linearizability judge for locks
    report.py    one HTML page a run; report_story.py: an anomaly as a story; report_plots.py: the pictures
    evidence.py  what is kept for explaining an anomaly
    scene.py     puts all of it together for one run
"""
