"""What a seed makes happen. No I/O."""

REDIS = 5
WRITERS_MAX = 5
FAULTS = {'pause': 'a writer is stopped past its TTL', 'restart': 'a Redis restarts without its keys',
          'delay': 'a write is held back on its way', 'clock': 'the clock of a Redis jumps'}
MODES = ('off', 'writes', 'on') # without tokens; a token with each write, and no claim; all with tokens
_WORD = (1 << 64) - 1


def numbers(seed):
    """SplitMix64 (Steele, Lea, Flood 2014): the same numbers everywhere from one seed."""
    state = seed & _WORD

    def draw(below):
        nonlocal state
        state = (state + 0x9e3779b97f4a7c15) & _WORD
        z = ((state ^ (state >> 30)) * 0xbf58476d1ce4e5b9) & _WORD
        z = ((z ^ (z >> 27)) * 0x94d049bb133111eb) & _WORD
        return (z ^ (z >> 31)) % below
    return draw


class Round:
    """first: the writer that the fault hits; next: the one that takes the lock after it. adds: updates that
    every writer makes before, undisturbed. late_write_first: the first one's write arrives before that of the
    next. loses, away: the Redis that forgets the lock, and two that are down when it is taken."""

    def __init__(self, fault, writers, draw):
        self.fault = fault
        self.adds = draw(2)
        self.first = draw(writers)
        self.next = (self.first + 1 + draw(writers - 1)) % writers
        self.late_write_first = draw(2) == 0
        at = list(range(REDIS))
        for i in range(1 if fault == 'clock' else 0, 3): # the clock that can be made to jump is that of the first
            j = i + draw(REDIS - i)
            at[i], at[j] = at[j], at[i]
        self.loses, self.away = at[0], at[1:3]


class Plan:
    def __init__(self, seed, clock):
        """clock: whether a clock can be made to jump here."""
        draw = numbers(seed)
        faults = ['pause', 'restart', 'delay'] + (['clock'] if clock else [])
        self.seed = seed
        self.writers = 3 + draw(WRITERS_MAX - 2)
        rounds = 2 + draw(len(faults) - 1)
        self.rounds = []
        for _ in range(rounds):
            j = draw(len(faults))
            fault, faults[j] = faults[j], faults[0]
            faults.pop(0)
            self.rounds.append(Round(fault, self.writers, draw))
