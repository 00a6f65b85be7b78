// redlock-cpp as a peer: see redlock_peers_lab.py for the lines that it reads and writes. It is compiled with the library's own
// hiredis, which has no TLS, and the library knows no users.
//
// peer HOST:PORT,... [continued]     continued: each lock is taken with ContinueLock, which is how it prolongs
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "redlock-cpp/redlock.h"

int main(int argc, char **argv)
{
    int out = dup(1);
    dup2(2, 1); // the library prints what it does
    CRedLock locks;
    std::istringstream addresses(argv[1]);
    for (std::string address; std::getline(addresses, address, ',');) {
        size_t colon = address.rfind(':');
        locks.AddServerUrl(address.substr(0, colon).c_str(), atoi(address.c_str() + colon + 1));
    }
    locks.SetRetry(1, 1);
    CLock *held = NULL; // one that is given up is not freed: the library frees two locks' strings as if they were one
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string word, key;
        int ttl = 0;
        words >> word;
        if (word == "lock" || word == "extend") {
            key = held == NULL ? "" : held->m_resource;
            if (word == "lock") {
                words >> key;
            }
            words >> ttl;
            CLock *lock = new CLock;
            bool ok = word == "extend" || argc > 2 ? locks.ContinueLock(key.c_str(), ttl, *lock) : locks.Lock(key.c_str(), ttl, *lock);
            held = ok ? lock : held;
            dprintf(out, "%s\n", ok ? "held" : word == "lock" ? "refused" : "lost");
        } else {
            locks.Unlock(*held);
            dprintf(out, "done\n"); // it does not tell
        }
    }
    return 0;
}
