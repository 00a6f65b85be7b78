/* sim_web.h: the simulation to look at: three nodes, two clients and a storage, and five
 * Redis servers, moved by whoever looks on. The page in a browser and the native test program use
 * this interface and nothing else.
 *
 * A state is what a seed and steps have led to. A step is a word:
 *
 *   2500      so many milliseconds pass
 *   go1       client 1 takes the lock, reads, adds its number, writes back and releases
 *   pause1    the process of client 1 is stopped         wake1   it goes on
 *   ready1    time passes until client 1 has made its last check before its write
 *   silent1   client 1 renews no more, so its lease ends
 *   hold1     the network holds back the next write of client 1
 *   late1     what it holds back arrives
 *   kill      the leader loses power                     start   nodes that are down start again
 *   killgrant the leader loses power when it has committed the next grant and told nobody
 *   part2     node 2 is cut off from the other nodes     cut14   client 1 from Redis server 4
 *   join      all links work again
 *   jump3     the clock of Redis server 3 jumps ahead by 10 seconds
 *   restart3  Redis server 3 starts again without its keys
 *   check0    the storage checks no tokens               check1  it does
 *   claim0    a reader sends no token                    claim1  it does, which is a claim
 *   redlock1  clients that begin use Redlock             redlock0  the lock service
 *   wait1     clients wait until a restarted server counts   wait0   they do not
 *
 * The address of a state is its seed and its steps with dots between: "1.go1.2500.pause1". The same
 * address gives the same state, byte for byte, in every process. Times of steps that follow one
 * another are added up. */
#ifndef SIM_WEB_H
#define SIM_WEB_H

#include <stddef.h>
#include <stdint.h>

#define SIM_WEB_ADDRESS_MAX 2000u
#define SIM_WEB_STEP_MAX_MS 120000u /* that one step may pass */
#define SIM_WEB_RUN_MAX_MS 600000u  /* and all together */

/* Begins anew: the cluster is formed, and nobody has done anything. */
void sim_web_begin(uint64_t seed);

/* 0, or -1: no such word, or not now, or it would last too long; nothing has changed then. */
int sim_web_step(const char *word);

/* Begins and takes all steps of an address. -1: it is none; what could be read has been done. */
int sim_web_open(const char *address);

/* State and trace as JSON, until the next call. */
const char *sim_web_state(void);

/* The presets of the page: name and address. NULL: there is none with this number. */
const char *sim_web_preset_name(unsigned i);
const char *sim_web_preset_address(unsigned i);

/* Frees everything. */
void sim_web_end(void);

#endif
