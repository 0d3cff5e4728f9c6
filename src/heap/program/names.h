/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compiled before every file of libsonde-capture: the code that it has in common with the preload has other names in there,
 * which cannot meet those of a program that the static library is linked to.
 */
#ifndef SONDE_HEAP_PROGRAM_NAMES_H
#define SONDE_HEAP_PROGRAM_NAMES_H

#define PRELOAD_OF_PROGRAM 1

#define preload sonde_p_state
#define thread sonde_p_thread
#define preload_ready sonde_p_ready
#define preload_off sonde_p_off
#define preload_wait sonde_p_wait
#define preload_needs_room sonde_p_needs_room
#define preload_in_sandbox sonde_p_in_sandbox
#define preload_give_up sonde_p_give_up
#define preload_share sonde_p_share
#define preload_shared_on sonde_p_shared_on
#define preload_unshare sonde_p_unshare
#define thread_claim sonde_p_claim
#define thread_release sonde_p_release
#define thread_ended sonde_p_ended
#define thread_leave_walks sonde_p_leave_walks
#define chunk_take sonde_p_chunk
#define ring_grow sonde_p_grow
#define stack_take sonde_p_stack
#define walk_stack sonde_p_walk
#define walk_state_bytes sonde_p_walk_bytes
#define walk_forget sonde_p_walk_forget
#define walk_keep_frames sonde_p_keep_frames
#define walk_paths sonde_p_walk_paths
#define walk_paths_forget sonde_p_forget_paths
#define step_general sonde_p_step
#define step_find_rule sonde_p_rule
#define step_forget_rules sonde_p_forget_rules
#define step_make_readable sonde_p_make_readable
#define node_find sonde_p_node
#define readable_enter sonde_p_enter
#define readable_extend sonde_p_extend
#define readable_page sonde_p_page
#define note_text_bytes sonde_p_text_bytes
#define note_measure sonde_p_measure
#define note_write sonde_p_write
#define note_put sonde_p_put
#define defined_keep sonde_p_keep
#define defined_tell sonde_p_tell

#endif
