#!/usr/bin/python3
"""lose_unsynced.py CONTROL DATA SEED: what a power cut leaves of a server that was killed under the shim.

SEED 0 takes back everything that was not synced; another one a random part of it, since a disk may have written
more than it was told to."""

import os
import random
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'tests', 'lib'))
from shim import Shim

control, data, seed = sys.argv[1:]
shim = Shim(control, data, journal=True)
print(shim.lose_unsynced(random.Random(int(seed)) if int(seed) else None))
