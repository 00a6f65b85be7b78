/* ceilings.h: every ceiling that several clients share, with the share of each; no code.
 * tests/lint/ceilings.py compares it with the code. Two rules give the shares (docs/adr/0069):
 * whoever has the most gives up (base/share.h), and whoever waits takes turns (base/line.h). What
 * is in use and cannot be taken back has a fixed part, three quarters, for one address or user.
 * Shares of the time of a turn are in base/turn.h.
 *
 * A constant that ends with _MAX, _WINDOW, _SLOTS, _ROOM, _RING or _MEMORY stands in one of the two
 * lists. In the first, by file: its name, who shares it, and the symbol, in a file, that gives the
 * share; or "none:" and the reason.
 *
 *   machine/limits.h
 *     MACHINE_OUTCOMES_MAX      users: fli_shares_most in machine/outcomes.c
 *     MACHINE_LIMITS_DEFAULT    none: locks, sessions and waits are for whom rights allow
 *     MACHINE_USERS_MAX         none: only @admin makes users
 *     MACHINE_USERS_BYTES_MAX   none: likewise
 *     MACHINE_BATCH_COST_MAX    connections: commands_first in commands/commands.c
 *     MACHINE_BATCH_COMMANDS_MAX connections: commands_first in commands/commands.c
 *     MACHINE_BATCH_MAX         connections: commands_first in commands/commands.c
 *   node/node_private.h
 *     NODE_PENDING_MAX          connections: has_room in commands/commands.c
 *   commands/commands.h
 *     COMMANDS_EXPIRED_MAX      none: the one that came first goes first
 *   commands/relay_codec.h
 *     RELAY_WINDOW              connections: commands_first in commands/commands.c
 *   commands/relay.c
 *     QUERIES_MAX               connections: commands_first in commands/commands.c
 *     BYTES_MAX                 connections: commands_first in commands/commands.c
 *   server/dispatch.h
 *     DISPATCH_CALLS_DEFAULT    connections: DISPATCH_FEW in server/dispatch.c
 *     DISPATCH_CLEANUP_MAX      addresses: fli_line_pop in server/cleanup.c
 *     DISPATCH_DUE_MAX          none: nobody waits for what is due
 *     DISPATCH_TOLD_MAX         waits: parked_take_told in server/parked.c
 *     DISPATCH_LISTINGS_MAX     addresses: fli_line_pop in server/listing.c
 *     DISPATCH_LISTINGS_PASSED_MAX addresses: fli_line_pop in server/listing.c
 *     DISPATCH_LISTINGS_WAIT_MAX addresses: fli_shares_most in server/listing.c
 *   frontdoor/signals.h
 *     SIGNALS_MAX               addresses: SIGNALS_ADDRESS_MAX in frontdoor/signals.c
 *   server/parked.h
 *     PARKED_RING               none: events, which clients do not choose
 *   server/access_private.h
 *     ACCESS_CALLS_MAX          addresses: ACCESS_ADDRESS_MAX in server/access.c
 *     ACCESS_ADDRESS_MAX        none: only @admin changes users
 *   server/events.h
 *     EVENTS_SUBS_MAX           addresses: EVENTS_ADDRESS_MAX in server/events.c
 *     EVENTS_GLOBS_MAX          addresses: EVENTS_ADDRESS_MAX in server/events.c
 *     EVENTS_QUEUE_MAX          lanes: EVENTS_COSTLY in server/events_publish.c
 *   server/audit.h
 *     AUDIT_ROOM                none: what finds no room is counted and told
 *   auth/logins.h
 *     AUTH_LOGINS_MAX           addresses: AUTH_ADDRESS_MAX in auth/logins.c
 *     AUTH_ADDRESS_MAX          users: AUTH_USER_MAX in auth/logins.c
 *   auth/throttle.h
 *     THROTTLE_MAX              addresses: fli_shares_most in auth/throttle.c
 *     THROTTLE_AHEAD_MS         users: is_known in auth/throttle.c
 *     THROTTLE_JUDGED_MAX       none: guesses, which cost a user of the same address only its lead
 *   net/client_list.h
 *     NET_LISTS_MAX             none: needs @admin
 *     NET_LISTED_TURN_MAX       none: needs @admin
 *   net/conn.h
 *     NET_REFUSED_MAX           none: they are told a reason, or not
 *     NET_ACCEPTS_TURN_MAX      none: in the kernel's order
 *   net/net.h
 *     connections_max           addresses: address_connections_max in net/origin.c
 *     memory_max                addresses: address_memory_max in net/memory.c
 *   store/server.h
 *     STORE_CONNECTIONS_MAX     addresses: address_connections_max in store/server.c
 *     STORE_CLIENT_MEMORY       addresses: address_memory_max in store/server.c
 *     STORE_TURN_OPS_MAX        none: what comes after is in the next transaction
 *     STORE_TURN_OUT_MAX        none: likewise
 *   store/server.c
 *     ANSWERS_MAX               none: likewise
 *   store/strict.h
 *     STRICT_WINDOW             none: questions are asked in the order in which they came
 *   metrics/listener.h
 *     LISTENER_CONNECTIONS_MAX  none: the oldest is cut; a port and a thread of its own
 *   peer/transport.h
 *     TRANSPORT_PENDING_MAX     addresses: TRANSPORT_PENDING_ADDRESS_MAX in peer/transport_open.c
 *     TRANSPORT_ACCEPTS_TURN_MAX none: in the kernel's order
 *
 * In the second: bounds of one client, message, file or record, or of what the code itself does.
 *
 *   auth/aclfile.c: ARGS_MAX
 *   auth/aclfile.h: ACLFILE_USERS_MAX ACLFILE_SIZE_MAX
 *   auth/hash.c: MEMORY_MAX
 *   auth/hash.h: AUTH_PASSWORD_MAX
 *   auth/logins.h: AUTH_USER_MAX
 *   consensus/configuration.h: CONFIGURATION_SIZE_MAX
 *   consensus/election.c: ROUNDS_MAX
 *   members/data_dir.c: FILE_PATH_MAX
 *   members/data_dir.h: DATA_DIR_PATH_MAX
 *   consensus/message_codec.h: MESSAGE_ENTRIES_MAX MESSAGE_BYTES_MAX MESSAGE_HEAD_MAX
 *       MESSAGE_ENTRY_MAX MESSAGE_BODY_MAX
 *   node/node_open.c: RAFT_FRAME_MAX RAFT_OUT_MAX RELAY_FRAME_MAX RELAY_OUT_MAX
 *   node/node_snapshot.c: ENTRIES_MAX TRAILING_MAX
 *   commands/proposer.c: QUERY_PAYLOAD_MAX IN_FLIGHT_COST_MAX
 *   consensus/raft_edge.h: RAFT_EDGE_TERM_STEP_MAX
 *   consensus/replica_private.h: REPLICA_HELD_MAX
 *   snapshot/install.c: WAITING_MAX
 *   snapshot/send.h: SNAPSHOT_WINDOW SNAPSHOT_FRAME_MAX
 *   members/starts.h: STARTS_MESSAGE_MAX
 *   machine/acl.h: ACL_NAME_MAX ACL_PASSWORDS_MAX ACL_RULES_MAX ACL_PATTERN_MAX ACL_TEXT_MAX
 *       ACL_ENCODED_MAX
 *   machine/batch.c: FIELDS_MAX
 *   machine/batch.h: MACHINE_ADDRESS_MAX
 *   machine/glob.c: PLAIN_STEPS_MAX SIDE_BY_SIDE_STEPS_MAX
 *   machine/limits.h: MACHINE_NODES_MAX MACHINE_NODE_ADDRESS_MAX MACHINE_COMMAND_MAX
 *       MACHINE_SEARCH_STEPS_MAX MACHINE_NAMES_MAX MACHINE_NUMBER_MAX MACHINE_LOGIN_MAX
 *       MACHINE_ATTEMPT_MAX MACHINE_HOLD_COUNT_MAX MACHINE_COMMAND_COST_MAX
 *       MACHINE_KEYS_MAX MACHINE_STEPS_OVER_MAX MACHINE_APPLY_STEPS_MAX MACHINE_RAISE_STEP_MAX
 *       MACHINE_EXPIRIES_MAX MACHINE_RAISE_TO_MAX MACHINE_PAGE_COUNT_MAX MACHINE_PAGE_SCAN_MAX
 *       MACHINE_SHOW_SCAN_MAX MACHINE_PAGE_MATCH_MAX MACHINE_PAGE_SIZE_MAX
 *   machine/lock.c: QUEUE_PART_MAX
 *   machine/machine.c: HELD_PART_MAX OPENED_PART_MAX IDLE_PART_MAX
 *   machine/machine.h: MACHINE_CODE_MAX MACHINE_EVENT_TYPE_MAX MACHINE_REASON_MAX
 *   machine/outcomes.h: OUTCOME_KEY_MAX
 *   machine/rights.h: RIGHTS_KNOWN_MAX
 *   machine/snapshot.h: SNAPSHOT_RECORD_MAX
 *   machine/state.h: ORIGIN_SIZE_MAX USER_RECORD_MAX REQUEST_KEY_MAX
 *   machine/view.c: CURSOR_TEXT_MAX RECORD_SIZE_MAX PAGE_ROOM
 *   metrics/listener.c: HOST_MAX
 *   metrics/listener.h: LISTENER_CUT_MAX LISTENER_TEXT_MAX
 *   net/address.h: NET_HOST_MAX NET_ADDRESS_MAX
 *   net/conn.h: NET_BUFFERS_MAX NET_LISTENERS_MAX
 *   net/connection_commands.h: NET_HELLO_FIELDS_MAX NET_USER_NAME_MAX
 *   net/net.h: NET_CONN_ADDRESS_MAX
 *   net/secure.c: OUT_MAX
 *   peer/frame.h: FRAME_MAX
 *   peer/handshake.h: HANDSHAKE_REASON_MAX
 *   peer/members.c: MEMBER_ID_MAX
 *   peer/members.h: MEMBERS_MAX KNOWN_MEMBERS_MAX MEMBER_ADDRESS_MAX MEMBERS_TEXT_MAX
 *   peer/security.c: PSK_CONTEXT_MAX
 *   peer/security.h: SECURITY_NAME_MAX SECURITY_MEMBER_NAME_MAX
 *   peer/stream.h: STREAM_PARTS_MAX STREAM_OUT_MAX
 *   peer/transport.h: TRANSPORT_PENDING_ADDRESS_MAX TRANSPORT_ACCEPTED_MAX
 *   peer/transport_private.h: TRANSPORT_LOG_MAX
 *   server/access_users.c: LIST_MAX KNOWN_MAX
 *   server/audit_record.h: AUDIT_TEXT_MAX AUDIT_RECORD_MAX AUDIT_LINE_MAX
 *   server/backup.c: PIECE_MAX
 *   server/cluster_config.h: CLUSTER_CONFIG_WHY_MAX
 *   server/config.h: CONFIG_PATH_MAX CONFIG_ERRMSG_MAX CONFIG_LINE_MAX
 *       CONFIG_SNAPSHOT_BYTES_MAX
 *   server/dispatch.c: BUSIEST_STEPS_MAX
 *   server/dispatch.h: DISPATCH_CALL_MEMORY DISPATCH_SPARE_MAX
 *   server/events.h: EVENTS_TOPIC_MAX EVENTS_GLOB_MAX EVENTS_CHANNELS_MAX EVENTS_PATTERNS_MAX
 *       EVENTS_ADDRESS_MAX EVENTS_CHEAP_PIECE_MAX
 *   server/events_private.h: EVENTS_TEXT_MAX EVENTS_FRAME_MAX
 *   server/history.h: HISTORY_OWNER_MAX
 *   server/info.h: INFO_TEXT_MAX
 *   server/page_state.c: PAYLOAD_MAX
 *   server/parked.h: PARKED_SPARE_MAX
 *   server/render.h: RENDER_ADDRESS_MAX
 *   server/server.c: PIPELINE_MAX SUBSCRIBER_UNSENT_MAX
 *   snapshot/file.h: SNAPSHOT_CONF_MAX
 *   snapshot/format.h: SNAPSHOT_UNIT_MAX SNAPSHOT_INDEX_MAX SNAPSHOT_TERM_MAX
 *   store/server.c: REQUEST_MAX INFO_MAX
 *   store/server.h: STORE_PIPELINE_MAX STORE_OUTPUT_MAX
 *   store/store.h: STORE_KEY_MAX STORE_VALUE_MAX
 */
#ifndef FLI_CEILINGS_H
#define FLI_CEILINGS_H
#endif
