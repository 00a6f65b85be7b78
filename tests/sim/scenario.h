/* scenario.h: runs that are told from beginning to end, instead of drawn: scenes, in which the
 * power is cut at a point of one's choosing (cut.c), and scenarios (scenario.c). Part of sim.h. */
#ifndef SIM_SCENARIO_H
#define SIM_SCENARIO_H

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
    SIM_SCENARIO_FOUNDERS,
    SIM_SCENARIO_DEPOSED,
    SIM_SCENARIOS
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
