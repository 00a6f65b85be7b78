"""The parts of tests/bench/compare.

    services.py  the services as processes of a Lab: how they are started, who leads, what loads them
    setup.py     packages and programs that are needed
    measure.py   one measurement each, of one service
    tls.py       what TLS costs, on clusters of its own
    targets.py   the goals, as ratios of what was measured
    report.py    the result as text and SVG
"""
