/* story.h: runs that are told from beginning to end, instead of drawn; see story.c. */
#ifndef SIM_STORY_H
#define SIM_STORY_H

#include "sim.h"

const char *sim_story_name(enum sim_story k);
void sim_story_choose(struct sim *s);
void sim_story_play(struct sim *s); /* the cluster is formed, and nobody has asked for anything */

#endif
