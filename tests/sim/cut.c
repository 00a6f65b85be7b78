/* cut.c: power cuts at chosen points, instead of at random ones.
 *
 * A point is a moment at which a node is about to do something visible: to take in a message, the
 * end of a disk operation or any other event; to hand messages to the network; to write, sync,
 * make, rename or remove a file, including its identity. One run of a scene counts its points. Then
 * it is run again for each point, and the power of that node is cut there. Messages that had left
 * are on their way, unsynced bytes are lost, and the rest of the turn is not done.
 *
 * A scene is a small cluster that is formed, or in which one node is forgotten with its disk,
 * removed and added again, replaced, or moved. */
#include <string.h>

#include "sim.h"

#define AGAIN_MS 150u
#define SCENE_AT_MS 300u
#define SCENE_MS 1500u
#define AFTER_MS 150u /* how long the scene goes on after everything is done */

static const struct {
    const char *name;
    struct sim_fault fault;
} scenes[SIM_SCENES] = {
    [SIM_SCENE_FORM] = {"form", {.at = SCENE_AT_MS, .kind = SIM_FAULT_JOIN}},
    [SIM_SCENE_LOST] = {"lost", {.at = SCENE_AT_MS, .kind = SIM_FAULT_WIPE, .ms = 50, .i = 1}},
    [SIM_SCENE_ADD] = {"add", {.at = SCENE_AT_MS, .kind = SIM_FAULT_MEMBER, .i = 1, .k = 0}},
    [SIM_SCENE_RETURN] =
        {"return", {.at = SCENE_AT_MS, .kind = SIM_FAULT_MEMBER, .i = 1, .k = 0, .both = true}},
    [SIM_SCENE_REPLACE] = {"replace",
                           {.at = SCENE_AT_MS, .kind = SIM_FAULT_MEMBER, .i = 1, .k = 1}},
    [SIM_SCENE_MOVE] = {"move", {.at = SCENE_AT_MS, .kind = SIM_FAULT_MEMBER, .i = 1, .k = 2}},
};

const char *sim_scene_name(enum sim_scene k)
{
    return k == SIM_SCENE_NONE ? "none" : scenes[k].name;
}

/* The seed chooses the node, and with it the disk; everything else is switched off. */
void sim_scene_choose(struct sim *s)
{
    struct sim_options *o = &s->options;
    if (s->orders.scene == SIM_SCENE_NONE) {
        return;
    }
    memset(o->weight, 0, sizeof o->weight);
    o->nodes = 3;
    o->writers = o->callers = 1;
    o->redlockers = o->askers = 0;
    o->work_ms = SCENE_MS;
    o->jumps = false;
    o->loss_permille = o->twice_permille = o->spike_permille = 0;
    o->limits = MACHINE_LIMITS_DEFAULT;
    o->pending_max = NODE_PENDING_MAX;
    o->snapshot_entries = 10;
    o->ttl_max_ms = 600;
    o->think_ms = 50;
}

void sim_scene_plan(struct sim *s)
{
    if (s->orders.scene != SIM_SCENE_NONE) {
        s->faults[0] = scenes[s->orders.scene].fault;
        s->faults[0].i = (unsigned)(s->orders.seed % s->options.nodes);
        s->faults_n = 1;
    }
}

static bool anything_changes(const struct sim *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        const struct sim_node *n = &s->nodes[i];
        if (n->wiped || n->replacing || n->change != SIM_CHANGE_NONE) {
            return true;
        }
    }
    return false;
}

/* A scene of forming ends when all nodes have it in their log; the others begin at their fault. */
void sim_scene_look(struct sim *s)
{
    bool forms = s->orders.scene == SIM_SCENE_FORM;
    bool on = forms ? !s->scene_began : anything_changes(s);
    if (s->orders.scene == SIM_SCENE_NONE) {
        return;
    }
    if (on) {
        s->scene_until = s->now + AFTER_MS;
    }
}

/* Called when a node is about to do something visible; a node without power does nothing
 * visible. */
void sim_point(struct sim_node *n)
{
    struct sim *s = n->sim;
    bool counts = s->orders.scene != SIM_SCENE_NONE && s->scene_until > s->now && !n->ghost &&
                  n->power != SIM_DOWN;
    if (!counts || ++s->points != s->orders.cut) {
        return;
    }
    SIM_TRACE(s, "node %u loses its power at point %llu", n->index + 1,
              (unsigned long long)s->points);
    s->marks->power_cuts++;
    n->ghost = n->disk.frozen = n->cut = true;
}

/* Called at the end of the turn in which the power was cut. */
void sim_point_crash(struct sim_node *n)
{
    n->cut = false;
    n->restart_at = n->sim->now + AGAIN_MS;
    sim_node_crash(n, true);
}
