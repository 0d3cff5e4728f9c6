/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Is this number a return address, and whose?
 *
 * What tells a return address from any other number that points into code is the call before it;
 * and the best witness is a direct call whose target is the function we are in.
 * docs/heuristics/return-address.md.
 */
#ifndef SONDE_UNWIND_EVIDENCE_H
#define SONDE_UNWIND_EVIDENCE_H

#include "unwind/walk_priv.h"

/* How well an address holds as the return address of the frame we stand on; ascending. */
enum evidence {
	NOT_A_CALL,
	UNREADABLE,    /* executable, but its bytes cannot be had */
	CALLS_OTHER,   /* a direct call of something else: right only if that jumped on to us */
	CALLS_UNKNOWN, /* an indirect call */
	CALLS_US,
};

struct candidate {
	uint64_t slot; /* where on the stack it was found */
	uint64_t pc;
	uint64_t target; /* CALLS_US: the start of our function */
	struct walk_mapping at;
	enum evidence evidence;
	uint8_t source; /* where the slot was read (enum unwind_source) */
};

/* Fills in evidence and mapping of c->pc; does not ask whom a direct call calls. False: not even
 * executable memory. */
bool candidate_glance(struct walk *w, struct candidate *c, struct call_site *ret_call);

/* The same, and does it call us? Also fills in the target. */
bool candidate_examine(struct walk *w, struct candidate *c);

/* Where the PLT stub at `target` leads; *ret is left alone when it is none or cannot be read. */
void walk_through_plt(struct walk *w, uint64_t target, uint64_t *ret);

/* Addresses that are returned to though nothing called: the runtime puts the bottom of a goroutine
 * there, the kernel the end of a signal handler. */
bool candidate_is_planted(struct walk *w, const struct candidate *c);

/* Does the step after the candidate land behind a call again? True also where its rule needs more than
 * the sp to say. */
bool candidate_leads_on(struct walk *w, const struct candidate *c);

/* Makes the candidate the pc that step `s` leads to; its registers are there already. */
void candidate_take(const struct walk *w, const struct candidate *c, uint8_t how, struct step *s);

#endif
