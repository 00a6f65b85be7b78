<?php
// PHP libraries as peers, with the distribution's php-redis: see redlock_peers_lab.py for the lines that it reads and writes.
//
// peer.php DIRECTORY HOST:PORT,... redlock-php | php-lock
//
// PEER_CA, a file: with TLS; redlock-php, which opens its connections by itself, needs it in SSL_CERT_FILE as well.
// PEER_USER and PEER_PASSWORD: who logs in; redlock-php knows no users.
error_reporting(E_ALL & ~E_DEPRECATED);
$addresses = array_map(function ($address) {
    [$host, $port] = explode(':', $address);
    return [(getenv('PEER_CA') ? 'tls://' : '') . $host, (int)$port, 30];
}, explode(',', $argv[2]));

class RedlockPhp
{
    private $redlock, $held;

    public function __construct($directory, $addresses)
    {
        $packed = $directory . '/vendor/ronnylt/redlock-php/src/RedLock.php';
        require is_file($packed) ? $packed : $directory . '/src/RedLock.php';
        $this->redlock = new RedLock($addresses, 2, 1);
    }

    public function lock($key, $ttl)
    {
        $lock = $this->redlock->lock($key, $ttl);
        $this->held = $lock ?: $this->held;
        return $lock ? 'held' : 'refused';
    }

    public function unlock()
    {
        $this->redlock->unlock($this->held);
        return 'done'; // it does not tell
    }
}

// php-lock/lock: a mutex is one key of one server. lock() and unlock() are behind synchronized().
class PhpLock
{
    private $redis, $held;

    public function __construct($directory, $addresses)
    {
        spl_autoload_register(function ($class) use ($directory) {
            $file = $directory . '/src/' . strtr(substr($class, strlen('Malkusch\Lock\\')), '\\', '/') . '.php';
            if (is_file($file)) {
                require $file;
            }
        });
        $this->redis = new Redis();
        $ca = getenv('PEER_CA');
        $this->redis->connect($addresses[0][0], $addresses[0][1], 30, null, 0, 0, $ca ? ['stream' => ['cafile' => $ca]] : []);
        if (getenv('PEER_USER')) {
            $this->redis->auth([getenv('PEER_USER'), getenv('PEER_PASSWORD')]);
        }
    }

    private static function does($mutex, $what)
    {
        Closure::bind(function () use ($what) {
            $this->$what();
        }, $mutex, get_class($mutex))();
    }

    public function lock($key, $ttl)
    {
        $mutex = new Malkusch\Lock\Mutex\RedisMutex($this->redis, $key, 0.001, $ttl / 1000);
        try {
            self::does($mutex, 'lock');
        } catch (Malkusch\Lock\Exception\LockAcquireTimeoutException $e) {
            return 'refused';
        }
        $this->held = $mutex;
        return 'held';
    }

    public function unlock()
    {
        try {
            self::does($this->held, 'unlock');
            return 'freed';
        } catch (Malkusch\Lock\Exception\LockReleaseException $e) {
            return 'lost';
        }
    }
}

$peer = null;
while (($line = fgets(STDIN)) !== false) {
    $words = explode(' ', trim($line));
    try {
        if ($peer === null) {
            $peer = ($argv[3] ?? '') === 'php-lock' ? new PhpLock($argv[1], $addresses) : new RedlockPhp($argv[1], $addresses);
        }
        echo $words[0] === 'lock' ? $peer->lock($words[1], (int)$words[2]) : $peer->unlock(), "\n";
    } catch (Exception $e) {
        echo 'error ' . strtr($e->getMessage(), "\n", ' ') . "\n";
    }
}
