"""How each driver's probe is built: below the build directory, or at DRIVER_PROBE, of the driver at DRIVER_SOURCE."""

import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILT = os.path.join(os.environ.get('BUILD_DIR') or os.path.join(ROOT, 'build'), 'drivers')


class GoProbe:
    argv = [os.environ.get('DRIVER_PROBE') or os.path.join(BUILT, 'probe-go')]

    def build(self):
        """From a copy, since the driver's place is part of go.mod."""
        driver = os.environ.get('DRIVER_SOURCE') or os.path.join(ROOT, 'src/drivers/go')
        with tempfile.TemporaryDirectory() as scratch:
            copy = os.path.join(scratch, 'probe')
            shutil.copytree(os.path.join(HERE, 'go'), copy)
            module = 'github.com/fencelock/fencelock/src/drivers/go'
            subprocess.run(['go', 'mod', 'edit', '-replace', '%s=%s' % (module, driver)], cwd=copy, check=True)
            if subprocess.run(['go', 'build', '-o', self.argv[0], '.'], cwd=copy).returncode != 0:
                sys.exit('the probe cannot be built')


PROBES = {'go': GoProbe()}
