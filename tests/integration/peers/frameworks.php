<?php
// Locks of frameworks in PHP, from Debian's packages, as peers: see redlock_peers.py for the lines that it reads and writes.
//
//     php frameworks.php LIBRARY HOST:PORT
[, $library, $address] = $argv;
[$host, $port] = explode(':', $address);
$redis = new Redis();
$redis->connect($host, (int) $port);

class Laravel
{
    private $lock;

    public function __construct(private Redis $redis)
    {
        require_once 'Illuminate/Cache/autoload.php';
        require_once 'Illuminate/Redis/autoload.php';
    }

    public function lock(string $key, int $ms): string
    {
        $connection = new Illuminate\Redis\Connections\PhpRedisConnection($this->redis);
        $lock = new Illuminate\Cache\PhpRedisLock($connection, $key, intdiv($ms, 1000));
        if (!$lock->get()) {
            return $this->redis->getLastError() ?? 'refused';
        }
        $this->lock = $lock;
        return 'held';
    }

    public function unlock(): string
    {
        return $this->lock->release() ? 'freed' : 'lost';
    }
}

class Symfony
{
    private $lock;
    private $locks;

    public function __construct(Redis $redis)
    {
        require_once 'Symfony/Component/Lock/autoload.php';
        $this->locks = new Symfony\Component\Lock\LockFactory(new Symfony\Component\Lock\Store\RedisStore($redis));
    }

    public function lock(string $key, int $ms): string
    {
        $this->lock = $this->locks->createLock($key, $ms / 1000, false);
        return $this->lock->acquire() ? 'held' : 'refused';
    }
}

$peer = new $library($redis);
while (($line = fgets(STDIN)) !== false) {
    $words = explode(' ', trim($line));
    try {
        $answer = $words[0] === 'lock' ? $peer->lock($words[1], (int) $words[2]) : $peer->unlock();
    } catch (Throwable $e) {
        $answer = 'error ' . $e->getMessage() . ' ' . $e->getPrevious()?->getMessage();
    }
    echo strtr($answer, "\n", ' '), "\n";
    flush();
}
