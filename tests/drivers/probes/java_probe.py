"""How the probe of the Java driver is built: with javac, of the driver's modules that need no framework. Maven fetches what these stand on, and
packs the driver for those attacks that want it as its users get it."""

import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys

from . import BUILT, HERE, ROOT, skip

SETTINGS = """<settings>
  <mirrors><mirror><id>had</id><mirrorOf>central</mirrorOf><url>file://%s</url></mirror></mirrors>
</settings>
"""

USER = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>user</groupId><artifactId>user</artifactId><version>1</version>
  <repositories><repository><id>published</id><url>file://%s</url></repository></repositories>
  %s
  <dependencies>
    %s
    <dependency><groupId>org.postgresql</groupId><artifactId>postgresql</artifactId><version>42.7.8</version></dependency>
  </dependencies>
</project>
"""


DEPENDENCY = '<dependency><groupId>io.github.fencelock</groupId><artifactId>%s</artifactId><version>0.1.0</version></dependency>'

BOOT = """<dependencyManagement><dependencies><dependency><groupId>org.springframework.boot</groupId><artifactId>spring-boot-dependencies</artifactId>
  <version>3.5.7</version><type>pom</type><scope>import</scope></dependency></dependencies></dependencyManagement>"""

EVERY = """class Every {
    Object[] made(io.github.fencelock.Fencelock locks) {
        return new Object[] {new io.github.fencelock.shedlock.FencelockLockProvider(locks), new io.github.fencelock.spring.FencelockAutoConfiguration(),
            new io.github.fencelock.quartz.FencelockJobFactory(locks, java.time.Duration.ZERO), io.github.fencelock.jdbc.Fence.class,
            new io.github.fencelock.integration.FencelockLockRegistry(locks, ""), io.github.fencelock.test.FencelockServer.class};
    }
}
"""


def digest(paths):
    content = hashlib.sha256()
    for path in sorted(paths):
        with open(path, 'rb') as f:
            content.update(f.read())
    return content.hexdigest()[:16]


class JavaProbe:
    calls_libc = False
    driver = os.environ.get('DRIVER_SOURCE') or os.path.join(ROOT, 'src/drivers/java')
    jars = os.path.join(BUILT, 'java-jars')
    plain = ['fencelock', 'fencelock-jdbc', 'fencelock-test'] # modules that need no framework
    # A small heap and the simplest collector, since many processes run beside each other; and addresses as the suite looks for them.
    java = ['java', '-Xmx256m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Djava.net.preferIPv4Stack=true', '-cp']
    maven = ['mvn', '-B', '-q', '-ntp']

    @property
    def classes(self):
        """A place for each state of the sources, since several suites may run at a time."""
        return os.environ.get('DRIVER_PROBE') or os.path.join(BUILT, 'probe-java-' + digest(self.programs() + self.sources()))

    @property
    def argv(self):
        return [*self.java, self.classes + os.pathsep + os.path.join(self.jars, '*'), 'Probe']

    def build(self):
        for program in ('java', 'javac', 'mvn'):
            if shutil.which(program) is None:
                skip('there is no ' + program)
        os.makedirs(BUILT, exist_ok=True)
        with open(self.jars + '.lock', 'w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(self.has_all()):
                self.fetch()
            if not os.path.exists(self.classes):
                shutil.rmtree(self.classes + '.new', ignore_errors=True)
                self.compile(self.programs() + self.sources(), self.classes + '.new', os.path.join(self.jars, '*'))
                os.rename(self.classes + '.new', self.classes)

    def has_all(self):
        """The mark of a machine that has what is needed now."""
        java = os.path.join(ROOT, 'src/drivers/java')
        poms = [*glob.glob(java + '/pom.xml'), *glob.glob(java + '/*/pom.xml'), os.path.join(HERE, 'java/pom.xml')]
        return '%s-has-%s' % (self.jars, digest(poms))

    def fetch(self):
        with_plugins = ['package', '-pl', ','.join(self.plain), '-Dtest=PureTest', '-Dsurefire.failIfNoSpecifiedTests=false']
        for pom, words in ((os.path.join(HERE, 'java'), ['dependency:copy-dependencies', '-DoutputDirectory=' + self.jars]),
                           (os.path.join(ROOT, 'src/drivers/java'), with_plugins)):
            if subprocess.run([*self.maven, '-f', pom, *words]).returncode != 0:
                skip('what the driver is built and tested with cannot be had from its registry')
        open(self.has_all(), 'w').close()

    def compile(self, sources, target, cp):
        if subprocess.run(['javac', '--release', '17', '-nowarn', '-d', target, '-cp', cp, *sources]).returncode != 0:
            sys.exit('the probe cannot be built')

    def programs(self):
        return sorted(glob.glob(os.path.join(HERE, 'java', '*.java')))

    def sources(self):
        return [path for m in self.plain for path in glob.glob(os.path.join(self.driver, m, 'src/main/java/**/*.java'), recursive=True)]

    def own_tests(self):
        """Of the modules that need no framework."""
        return [*self.maven, '-o', 'test', '-pl', ','.join(self.plain),
                '-Dfencelock.vectors=' + os.path.join(ROOT, 'tests/vectors/lease/lease.json')], self.driver

    def fences(self, scratch):
        return [*self.argv[:-1], 'Fences']

    def frameworks(self, scratch, database):
        """The tests of the modules for ShedLock, Spring and Quartz, each with its framework: the command, where it runs, and its environment.
        Before, a project that has nothing yet gets the jars of all modules from a repository and compiles with them."""
        copy = os.path.join(scratch, 'driver')
        shutil.copytree(self.driver, copy, ignore=shutil.ignore_patterns('target'))
        if subprocess.run([*self.maven, 'test-compile'], cwd=copy).returncode != 0:
            return None
        lib, every = self.publish(scratch), os.path.join(scratch, 'Every.java')
        with open(every, 'w', encoding='utf-8') as f:
            f.write(EVERY)
        self.compile([every], os.path.join(scratch, 'classes'), lib)
        sources = glob.glob(os.path.join(self.driver, 'fencelock*/src/main/java/**/*.java'), recursive=True)
        subprocess.run(self.pages(scratch, sources, lib), check=True)
        return [*self.maven, 'test'], copy, {'FENCELOCK_TEST_POSTGRES': self.database(database)}

    @staticmethod
    def database(url):
        """The address of libpq as one of JDBC, which cannot use a socket's path."""
        return 'jdbc:postgresql://127.0.0.1:%s/postgres?user=postgres' % re.search(r'port=(\d+)', url)[1]

    def publish(self, scratch, *modules):
        """The jars of these modules or of all, in a repository; and a user's project, with a local repository that has nothing yet. Gives its
        class path."""
        published, user = (os.path.join(scratch, name) for name in ('published', 'user'))
        subprocess.run([os.path.join(self.driver, 'package'), published, *modules], env=dict(os.environ, MAVEN_ARGS='--offline'), check=True)
        os.makedirs(user)
        found = [m for m in os.listdir(os.path.join(published, 'io/github/fencelock')) if m != 'fencelock-parent']
        with open(os.path.join(user, 'pom.xml'), 'w', encoding='utf-8') as f:
            f.write(USER % (published, '' if modules else BOOT, ''.join(DEPENDENCY % m for m in found)))
        subprocess.run([*self.clean_maven(scratch), '-f', user, 'dependency:copy-dependencies', '-DoutputDirectory=lib'], check=True)
        return os.path.join(user, 'lib', '*')

    def clean_maven(self, scratch):
        """Maven with a local repository that has nothing yet, scratch/m2, and the real one in place of the registry."""
        settings = os.path.join(scratch, 'settings.xml')
        with open(settings, 'w', encoding='utf-8') as f:
            f.write(SETTINGS % os.path.expanduser('~/.m2/repository'))
        return [*self.maven, '-s', settings, '-Dmaven.repo.local=' + os.path.join(scratch, 'm2')]

    @staticmethod
    def pages(scratch, sources, cp):
        """The command that makes the pages of the API."""
        return ['javadoc', '-quiet', '-Xdoclint:all', '-Werror', '--release', '17', '-cp', cp, '-d', os.path.join(scratch, 'pages'), *sources]

    def package(self, scratch, url):
        """The pages of the API; that the jars work is seen by test_the_page, which takes them from a repository."""
        yield self.pages(scratch, self.sources(), os.path.join(self.jars, '*')), {}

    def page(self, scratch):
        """The program of src/drivers/java/README.md as it stands there, with the jars from a repository; its other blocks are compiled."""
        with open(os.path.join(ROOT, 'src/drivers/java/README.md'), encoding='utf-8') as f:
            blocks = re.findall(r'^```java\n(.*?)^```', f.read(), re.M | re.S)
        assert len(blocks[0].splitlines()) <= 15 and len(blocks) > 1
        lib, classes = self.publish(scratch, *self.plain), os.path.join(scratch, 'classes')
        with open(os.path.join(scratch, 'Add.java'), 'w', encoding='utf-8') as f:
            f.write(blocks[0])
        imports, rest = ''.join(re.findall(r'^import .*\n', blocks[0], re.M)), ''.join('{\n%s}\n' % b for b in blocks[1:])
        with open(os.path.join(scratch, 'Rest.java'), 'w', encoding='utf-8') as f:
            f.write(imports + 'class Rest { void all(Fencelock locks, Runnable worker) throws Exception {\n%s} }\n' % rest)
        self.compile([os.path.join(scratch, name) for name in ('Add.java', 'Rest.java')], classes, lib)
        return ['java', '-cp', classes + os.pathsep + lib, 'Add']

    def kubernetes(self, scratch):
        return None
