<?php
// redlock-php as a peer, with the distribution's php-redis: see redlock_peers.py for the lines that it reads and writes.
error_reporting(E_ALL & ~E_DEPRECATED);
require $argv[1] . '/vendor/ronnylt/redlock-php/src/RedLock.php';

$servers = array_map(function ($address) {
    [$host, $port] = explode(':', $address);
    return [$host, (int)$port, 30];
}, explode(',', $argv[2]));
$redlock = new RedLock($servers, 2, 1);
$held = null;
while (($line = fgets(STDIN)) !== false) {
    $words = explode(' ', trim($line));
    try {
        if ($words[0] === 'lock') {
            $lock = $redlock->lock($words[1], (int)$words[2]);
            $held = $lock ?: $held;
            echo $lock ? "held\n" : "refused\n";
        } else {
            $redlock->unlock($held);
            echo "done\n"; // it does not tell
        }
    } catch (Exception $e) {
        echo 'error ' . strtr($e->getMessage(), "\n", ' ') . "\n";
    }
}
