/* scenario.h: runs that are told from beginning to end, instead of drawn: scenes, in which the
 * power is cut at a point of one's choosing (cut.c), and scenarios (scenario.c); and how else a run
 * is to differ from what its seed says. Part of sim.h. */
#ifndef SIM_SCENARIO_H
#define SIM_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

struct sim;
struct sim_node;

enum sim_scene {
    SIM_SCENE_NONE,
    SIM_SCENE_FORM,
    SIM_SCENE_LOST,
    SIM_SCENE_ADD,
    SIM_SCENE_RETURN,
    SIM_SCENE_REPLACE,
    SIM_SCENE_MOVE,
    SIM_SCENES
};

enum sim_scenario {
    SIM_SCENARIO_NONE,
    SIM_SCENARIO_FOUNDERS,
    SIM_SCENARIO_REMOVED,
    SIM_SCENARIO_OLDER,
    SIM_SCENARIO_SNAPSHOTS,
    SIM_SCENARIO_BUSY,
    SIM_SCENARIO_LACKS,
    SIM_SCENARIO_TAIL,
    SIM_SCENARIO_OFTEN,
    SIM_SCENARIO_FOUR,
    SIM_SCENARIO_LEARNER,
    SIM_SCENARIO_UNSYNCED,
    SIM_SCENARIO_DEPOSED,
    SIM_SCENARIO_OVERTAKEN,
    SIM_SCENARIO_BESIDE,
    SIM_SCENARIO_DIFFERS,
    SIM_SCENARIO_UNREAD,
    SIM_SCENARIO_FLOODED,
    SIM_SCENARIO_AWAITED,
    SIM_SCENARIO_DOUBTED,
    SIM_SCENARIO_FORCED,
    SIM_SCENARIO_CACHED,
    SIM_SCENARIO_CROWDED,
    SIM_SCENARIO_TORN,
    SIM_SCENARIO_MOVED,
    SIM_SCENARIOS
};

enum sim_sabotage {
    SIM_SABOTAGE_NONE,
    SIM_SABOTAGE_NO_FENCING,
    SIM_SABOTAGE_CHECK_WRITES_ONLY,
    SIM_SABOTAGE_UNSAFE_ACK,
    SIM_SABOTAGE_NO_SYNC,
    SIM_SABOTAGE_FORGET_MARKS, /* the storage does, in a crash */
    SIM_SABOTAGE_OLDER_COPIES, /* nobody looks how old a disk is */
    SIM_SABOTAGES
};

/* How one run is to differ from what its seed says. */
struct sim_orders {
    uint64_t seed;
    bool trace;
    enum sim_sabotage sabotage;
    uint64_t until_ms;      /* work ends then; 0: as the seed says */
    unsigned clients;       /* the first so many; 0: all */
    const uint8_t *without; /* without[i] != 0: fault i is left out; may be NULL */
    const char *replay;     /* the command that repeats this run, for messages */
    uint64_t length;        /* operations of the run, at least; 0: as the seed says */
    bool members_heavy;     /* changes of members all the time */
    bool relay_heavy;       /* pipelines, and changes of who leads */
    enum sim_scene scene;
    enum sim_scenario scenario;
    uint64_t cut; /* the power goes at this point of the scene; 0: at none */
};

/* cut.c */
const char *sim_scene_name(enum sim_scene k);
void sim_scene_choose(struct sim *s);
void sim_scene_plan(struct sim *s);
void sim_scene_look(struct sim *s);
void sim_point(struct sim_node *n);
void sim_point_crash(struct sim_node *n);

/* scenario.c */
const char *sim_scenario_name(enum sim_scenario k);
void sim_scenario_choose(struct sim *s);
void sim_scenario_found(struct sim *s);
void sim_scenario_play(
    struct sim *s); /* the cluster is formed, and nobody has asked for anything */

#endif
