"""How each driver's probe is built, once, below the build directory."""

import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILT = os.path.join(os.environ.get('BUILD_DIR') or os.path.join(ROOT, 'build'), 'drivers')


class GoProbe:
    argv = [os.path.join(BUILT, 'probe-go')]

    def build(self):
        subprocess.run(['go', 'build', '-o', self.argv[0], '.'], cwd=os.path.join(HERE, 'go'), check=True)


PROBES = {'go': GoProbe()}
