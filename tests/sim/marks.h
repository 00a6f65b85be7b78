/* marks.h: what runs of the simulation have to reach, so that they test what they say. */
#ifndef SIM_MARKS_H
#define SIM_MARKS_H

#include <stdint.h>

/* Counted over all seeds, with the number of seeds after which each must have been reached: a run
 * that long in which one stays zero does not test what it says. */
#define SIM_MARKS(X)                                                                               \
    X(operations, 1)                                                                               \
    X(read_back, 1)                                                                                \
    X(grants, 50)                                                                                  \
    X(queued, 50)                                                                                  \
    X(granted_from_queue, 50)                                                                      \
    X(waits_ended, 50)                                                                             \
    X(expired, 50)                                                                                 \
    X(broken, 100)                                                                                 \
    X(released, 50)                                                                                \
    X(renewed, 50)                                                                                 \
    X(renew_refused, 100)                                                                          \
    X(checks_held, 100)                                                                            \
    X(checks_gone, 100)                                                                            \
    X(shows, 100)                                                                                  \
    X(listings, 100)                                                                               \
    X(sendings_refused, 50)                                                                        \
    X(tokens, 50)                                                                                  \
    X(sessions, 50)                                                                                \
    X(sessions_expired, 50)                                                                        \
    X(sessions_renewed, 50)                                                                        \
    X(renewed_in_memory, 50)                                                                       \
    X(sessions_lost, 100)                                                                          \
    X(waits_died, 200)                                                                             \
    X(together, 50)                                                                                \
    X(together_queued, 50)                                                                         \
    X(together_expired, 50)                                                                        \
    X(together_held_back, 100)                                                                     \
    X(shared, 50)                                                                                  \
    X(shared_beside, 50)                                                                           \
    X(permits, 50)                                                                                 \
    X(permits_used_up, 100)                                                                        \
    X(delays, 50)                                                                                  \
    X(waits_cancelled, 50)                                                                         \
    X(cancels_late, 100)                                                                           \
    X(owners_made, 50)                                                                             \
    X(grants_undone, 200)                                                                          \
    X(half_closed, 100)                                                                            \
    X(left_by_hand, 100)                                                                           \
    X(probes, 50)                                                                                  \
    X(leaderless, 100)                                                                             \
    X(resets, 50)                                                                                  \
    X(abandoned, 50)                                                                               \
    X(late, 200)                                                                                   \
    X(calls_refused, 50)                                                                           \
    X(asked, 50)                                                                                   \
    X(superseded_asked, 200)                                                                       \
    X(superseded_answered, 200)                                                                    \
    X(mismatches, 50)                                                                              \
    X(believed_twice, 1000)                                                                        \
    X(deadlocks, 1000)                                                                             \
    X(limit_locks, 100)                                                                            \
    X(limit_sessions, 100)                                                                         \
    X(limit_waits, 100)                                                                            \
    X(limit_lock_waits, 100)                                                                       \
    X(limit_session_locks, 100)                                                                    \
    X(uncertain, 50)                                                                               \
    X(noleader, 50)                                                                                \
    X(busy, 200)                                                                                   \
    X(relayed, 50)                                                                                 \
    X(terms, 50)                                                                                   \
    X(stale_leaders, 100)                                                                          \
    X(transfers, 100)                                                                              \
    X(snapshots_taken, 50)                                                                         \
    X(snapshots_taken_while_sent, 200)                                                             \
    X(snapshots_taken_while_opened, 10000)                                                         \
    X(snapshots_installed, 100)                                                                    \
    X(snapshots_started_from, 50)                                                                  \
    X(crashes, 50)                                                                                 \
    X(stops, 50)                                                                                   \
    X(power_cuts, 50)                                                                              \
    X(writes_lost, 50)                                                                             \
    X(writes_torn, 50)                                                                             \
    X(disk_errors, 100)                                                                            \
    X(disk_stalls, 50)                                                                             \
    X(votes_interrupted, 100)                                                                      \
    X(disks_lost, 100)                                                                             \
    X(disks_full, 100)                                                                             \
    X(rot, 100)                                                                                    \
    X(rot_found, 200)                                                                              \
    X(snapshot_troubles, 100)                                                                      \
    X(snapshots_failed, 100)                                                                       \
    X(starts_delayed, 50)                                                                          \
    X(starts_failed, 50)                                                                           \
    X(reads, 50)                                                                                   \
    X(rests_sent, 50)                                                                              \
    X(streams_given_up, 50)                                                                        \
    X(nodes_refused, 100)                                                                          \
    X(nodes_restored, 200)                                                                         \
    X(older_copies, 400)                                                                           \
    X(older_copies_refused, 400)                                                                   \
    X(members_changed, 100)                                                                        \
    X(nodes_dismissed, 400)                                                                        \
    X(loyal, 100)                                                                                  \
    X(changed_over, 50)                                                                            \
    X(pauses, 50)                                                                                  \
    X(clock_jumps, 50)                                                                             \
    X(cuts, 50)                                                                                    \
    X(messages_lost, 50)                                                                           \
    X(messages_twice, 50)                                                                          \
    X(streams_broken, 50)                                                                          \
    X(store_crashes, 50)                                                                           \
    X(claims, 50)                                                                                  \
    X(writes, 50)                                                                                  \
    X(writes_stale, 50)                                                                            \
    X(writes_held_back, 50)                                                                        \
    X(unanswered_again, 200000)                                                                    \
    X(holds_lost, 50)                                                                              \
    X(redlocks, 50)                                                                                \
    X(redlocks_twice, 200)                                                                         \
    X(redlocks_extended, 50)                                                                       \
    X(redlocks_refused, 50)                                                                        \
    X(redis_evicted, 100)                                                                          \
    X(handshakes_waited, 50)                                                                       \
    X(redis_restarts, 50)                                                                          \
    X(entered, 50)                                                                                 \
    X(entered_expired, 100)                                                                        \
    X(reentered, 50)                                                                               \
    X(left, 50)                                                                                    \
    X(left_again, 200)                                                                             \
    X(keyed_taken, 300)                                                                            \
    X(keyed_prolonged, 300)                                                                        \
    X(keyed_expired, 600)                                                                          \
    X(keyed_again, 1500)                                                                           \
    X(users_changed, 50)                                                                           \
    X(rights_lacked, 100)                                                                          \
    X(logins_over, 100)                                                                            \
    X(not_theirs, 400)                                                                             \
    X(waits_denied, 200)                                                                           \
    X(answers_refused, 100)                                                                        \
    X(pipelined, 50)                                                                               \
    X(late_calls, 200)                                                                             \
    X(late_calls_retried, 200)                                                                     \
    X(late_calls_in_a_new_term, 1000)                                                              \
    X(late_ends, 200)                                                                              \
    X(late_ends_retried, 200)                                                                      \
    X(late_ends_in_a_new_term, 1000)                                                               \
    X(late_bytes, 200)                                                                             \
    X(late_bytes_in_a_new_term, 1000)                                                              \
    X(late_works, 200)                                                                             \
    X(late_works_in_a_new_term, 1000)                                                              \
    X(late_disks, 200)                                                                             \
    X(late_disks_in_a_new_term, 1000)                                                              \
    X(client_pauses, 50)

/* Of runs with many changes of members (--members-heavy): what callers are told, what operators are
 * told, each state of a member, and each change that was asked for. So many seeds must have reached
 * each of them so often. */
#define SIM_MEMBER_SEEDS 600u
#define SIM_MEMBER_TIMES 10u
#define SIM_MEMBER_MARKS(X)                                                                        \
    X(called_welcome)                                                                              \
    X(called_undecided)                                                                            \
    X(called_stranger)                                                                             \
    X(called_wiped)                                                                                \
    X(called_removed)                                                                              \
    X(called_older)                                                                                \
    X(change_done)                                                                                 \
    X(change_busy)                                                                                 \
    X(change_denied)                                                                               \
    X(change_unknown_node)                                                                         \
    X(change_taken)                                                                                \
    X(change_bad_address)                                                                          \
    X(change_repeated)                                                                             \
    X(change_noleader)                                                                             \
    X(change_uncertain)                                                                            \
    X(member_none)                                                                                 \
    X(member_leaving)                                                                              \
    X(member_left)                                                                                 \
    X(member_giving_way)                                                                           \
    X(member_gone)                                                                                 \
    X(member_awaited)                                                                              \
    X(member_learner)                                                                              \
    X(member_settling)                                                                             \
    X(member_voter)                                                                                \
    X(plan_remove)                                                                                 \
    X(plan_replace)                                                                                \
    X(plan_move)                                                                                   \
    X(plan_add)                                                                                    \
    X(wiped_while_joining)                                                                         \
    X(calls_elsewhere)                                                                             \
    X(change_planned_address)

struct sim_marks {
#define SIM_MARK_FIELD(name, needs) uint64_t name;
    SIM_MARKS(SIM_MARK_FIELD)
#undef SIM_MARK_FIELD
#define SIM_MARK_FIELD(name) uint64_t name;
    SIM_MEMBER_MARKS(SIM_MARK_FIELD)
#undef SIM_MARK_FIELD
    uint64_t simulated_ms, events, faults;
    uint64_t scenarios_told; /* that came to what they are about */
    uint64_t points;         /* of the scene of the last run, see cut.c */
};

#endif
