/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The flame graph as one SVG file, the outermost frames on top.
 *
 * Each box is a nested <svg> whose x and width are percentages, so the picture fits any page and
 * clips its own text without a script; flame.js only changes those percentages. Boxes are written
 * in depth-first order, which the script relies on. Colours come from hashes of names: the same
 * function looks the same in every picture.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "view/flame_css.h"
#include "view/flame_js.h"
#include "view/view_priv.h"

#define ROW_PX 18
#define HEADER_PX 92
#define FOOTER_PX 12

/* Narrower boxes are never seen; more boxes than this make browsers slow, and the narrowest go. */
#define MIN_PERCENT 0.01
#define MAX_BOXES 12000

/* Narrower boxes get their label from the script, when they are zoomed into: this halves files. */
#define MIN_LABEL_PERCENT 0.8

/* ---- colours ---- */

enum tone {
	TONE_NATIVE,
	TONE_KERNEL,
	TONE_JIT,
	TONE_WAIT,
	TONE_UNKNOWN,
	TONE_COUNT,
};

/* Hues in degrees; the module picks one in the range, the function the shade. All shades are light
 * enough for dark text (contrast above 7:1). */
static const struct {
	const char *words;      /* for the legend */
	const char *modules[3]; /* whose colours stand there: up to the first NULL */
	unsigned hue, hues; /* from, and how many degrees */
	unsigned saturation;
} tones[TONE_COUNT] = {
	[TONE_NATIVE] = {"native, by module", {"libzstd.so.1", "libstdc++.so.6", "libc.so.6"},
		165, 100, 58},
	[TONE_KERNEL] = {"kernel", {"[kernel]"}, 18, 24, 85},
	[TONE_JIT] = {"JIT", {"[jit]"}, 85, 45, 55},
	[TONE_WAIT] = {"off the CPU", {"[futex]", "[syscall]", "[run queue]"}, 275, 70, 60},
	[TONE_UNKNOWN] = {"no name", {""}, 0, 1, 0},
};

static enum tone tone_of(const struct profile *p, const struct profile_function *f)
{
	const struct profile_module *m = module_of(p, f);

	if (f->state != STATE_ON_CPU)
		return TONE_WAIT;
	if (f->kernel || (m && m->kind == MODULE_KERNEL))
		return TONE_KERNEL;
	if (f->unresolved)
		return TONE_UNKNOWN;
	return m && m->kind == MODULE_JIT ? TONE_JIT : TONE_NATIVE;
}

/* CSS Color 4, section "HSL to RGB"; hue in degrees, the others 0..1. */
static unsigned hsl_channel(unsigned hue, double saturation, double light, unsigned n)
{
	double k = fmod(n + hue / 30.0, 12);
	double reach = saturation * (light < 0.5 ? light : 1 - light);
	double slope = fmin(fmin(k - 3, 9 - k), 1);

	return (unsigned)lround(255 * (light - reach * fmax(slope, -1)));
}

static uint32_t colour(enum tone tone, const char *module, const char *function, bool inlined)
{
	uint64_t m = hash_bytes(module, strlen(module)), f = hash_bytes(function, strlen(function));
	unsigned hue = tones[tone].hue + (unsigned)(m % tones[tone].hues);
	double light = (inlined ? 0.85 : 0.70) + (double)(f % 64) / 800;
	double saturation = tones[tone].saturation / 100.0;

	return hsl_channel(hue, saturation, light, 0) << 16 |
	       hsl_channel(hue, saturation, light, 8) << 8 |
	       hsl_channel(hue, saturation, light, 4);
}

/* ---- which boxes ---- */

struct flame {
	const struct profile *p;
	const struct term *plain; /* no colour, no limits: for words */
	struct profile_tree tree;
	struct buf *out;
	double *x;          /* by node: left edge in percent */
	uint32_t *depth;    /* by node: 0 for the root */
	uint32_t max_depth; /* of a drawn box */
	double min_percent;
	size_t drawn, pruned;
	double pruned_percent;
	bool tones[TONE_COUNT], inlined; /* seen, for the legend */
	struct profile_wakes wakes;      /* empty when nobody knows, or inverted */
	struct chain chain;
	bool inverted;
};

static double width_of(const struct flame *g, uint32_t node)
{
	const struct tree_node *n = &g->tree.nodes.data[node];

	return node ? part_of(g->p, n->total, n->total_weight) : 100;
}

static size_t boxes_wider_than(const struct flame *g, double percent)
{
	size_t count = 0;

	for (uint32_t i = 0; i < g->tree.nodes.len; i++)
		count += width_of(g, i) >= percent;
	return count;
}

/* The next node in depth-first order; without the subtree of `node` when `skip`. */
static uint32_t next_node(const struct profile_tree *t, uint32_t node, bool skip)
{
	const struct tree_node *n = &t->nodes.data[node];

	if (!skip && n->first_child != PROFILE_NONE)
		return n->first_child;
	while (node && t->nodes.data[node].next_sibling == PROFILE_NONE)
		node = t->nodes.data[node].parent;
	return node ? t->nodes.data[node].next_sibling : PROFILE_NONE;
}

/* Edges and depths of all boxes, and how many there will be. */
static void lay_out(struct flame *g)
{
	const struct tree_node *nodes = g->tree.nodes.data;

	g->min_percent = MIN_PERCENT;
	while (boxes_wider_than(g, g->min_percent) > MAX_BOXES)
		g->min_percent *= 1.3;
	for (uint32_t i = 0; i != PROFILE_NONE;) {
		bool skip = width_of(g, i) < g->min_percent;
		double x = g->x[i];

		if (skip) {
			g->pruned++;
			g->pruned_percent += width_of(g, i);
		} else {
			g->drawn++;
			if (g->depth[i] > g->max_depth)
				g->max_depth = g->depth[i];
			for (uint32_t c = nodes[i].first_child; c != PROFILE_NONE;
				c = nodes[c].next_sibling) {
				g->x[c] = x;
				g->depth[c] = g->depth[i] + 1;
				x += width_of(g, c);
			}
		}
		i = next_node(&g->tree, i, skip);
	}
}

/* ---- boxes ---- */

/* words_share() has a '<' in it for the smallest. */
static void xml_share(struct buf *out, double percent)
{
	struct buf words = {0};

	words_share(&words, percent);
	out->failed |= words.failed;
	if (words.data)
		buf_xml(out, words.data);
	buf_release(&words);
}

/* Samples on the CPU are alike and can be counted; time off it is measured. */
static void how_much(struct flame *g, const struct tree_node *n)
{
	if (g->p->mode == PROFILE_HEAP && g->p->heap->weighed != HEAP_BY_COUNT) {
		words_bytes(g->out, n->total_weight);
		return;
	}
	if (g->p->mode == PROFILE_HEAP) {
		words_count(g->out, n->total_weight);
		buf_str(g->out, n->total_weight == 1 ? " block" : " blocks");
		return;
	}
	if (g->p->mode != PROFILE_CPU) {
		words_duration(g->out, n->total_weight);
		return;
	}
	words_count(g->out, n->total);
	buf_str(g->out, n->total == 1 ? " sample" : " samples");
}

#define MAX_WAKERS 3

/* Who ended these waits: the first few, a line each. */
static void wakers(struct flame *g, uint32_t node)
{
	size_t count;
	const struct profile_wake *rows = profile_wakes_of(&g->wakes, node, &count);
	struct buf line = {0};

	for (size_t i = 0; i < count && i < MAX_WAKERS; i++) {
		buf_clear(&line);
		words_share(&line, percent_of(rows[i].weight,
					   g->tree.nodes.data[node].self_weight));
		buf_char(&line, ' ');
		words_wake(&line, g->p, &rows[i]);
		if (rows[i].path != PROFILE_NONE &&
			!chain_of_node(g->p, &g->wakes.paths, rows[i].path, &g->chain)) {
			buf_str(&line, ": ");
			chain_draw(&line, g->plain, g->chain.data, g->chain.len, 0);
		}
		buf_char(g->out, '\n');
		g->out->failed |= line.failed;
		if (line.data)
			buf_xml(g->out, line.data);
	}
	if (count > MAX_WAKERS)
		buf_printf(g->out, "\nwoken in %zu other ways", count - MAX_WAKERS);
	buf_release(&line);
}

static void box_title(struct flame *g, uint32_t node, const struct profile_function *f)
{
	const struct tree_node *n = &g->tree.nodes.data[node];
	const char *module = f ? module_name(g->p, f) : "";

	buf_str(g->out, "<title>");
	buf_xml(g->out, f ? f->name : "all");
	buf_str(g->out, n->inlined ? " (inlined)\n" : "\n");
	xml_share(g->out, width_of(g, node));
	buf_str(g->out, ", ");
	how_much(g, n);
	/* In an inverted tree it would be the stacks that begin here. */
	if (n->self && !g->inverted && (!f || f->state == STATE_ON_CPU)) {
		buf_str(g->out, ", ");
		xml_share(g->out, part_of(g->p, n->self, n->self_weight));
		buf_str(g->out, " itself");
	}
	wakers(g, node);
	if (*module) {
		buf_char(g->out, '\n');
		buf_xml(g->out, module);
	}
	if (n->guessed)
		buf_str(g->out, "\npartly guessed: code without unwind information");
	buf_str(g->out, "</title>");
}

static void box(struct flame *g, uint32_t node)
{
	const struct tree_node *n = &g->tree.nodes.data[node];
	const struct profile_function *f =
		n->function == PROFILE_NONE ? NULL : &g->p->functions.data[n->function];
	uint32_t fill = 0xd8dce0;

	if (f) {
		enum tone tone = tone_of(g->p, f);

		fill = colour(tone, tone == TONE_WAIT ? f->name : module_name(g->p, f), f->name,
			n->inlined);
		g->tones[tone] = true;
		g->inlined |= n->inlined;
	}
	buf_printf(g->out,
		"<svg class=\"f\" x=\"%.4f%%\" width=\"%.4f%%\" y=\"%u\" height=\"%d\" "
		"tabindex=\"%d\">",
		g->x[node], width_of(g, node), HEADER_PX + g->depth[node] * ROW_PX, ROW_PX,
		node ? -1 : 0);
	box_title(g, node, f);
	buf_printf(
		g->out, "<rect width=\"100%%\" height=\"100%%\" rx=\"2\" fill=\"#%06x\"/>", fill);
	buf_str(g->out, "<text x=\"4\" y=\"13\">");
	if (width_of(g, node) >= MIN_LABEL_PERCENT)
		buf_xml(g->out, f ? f->name : "all");
	buf_str(g->out, "</text></svg>\n");
}

static void boxes(struct flame *g)
{
	buf_str(g->out, "<g id=\"boxes\">\n");
	for (uint32_t i = 0; i != PROFILE_NONE;) {
		bool skip = width_of(g, i) < g->min_percent;

		if (!skip)
			box(g, i);
		i = next_node(&g->tree, i, skip);
	}
	buf_str(g->out, "</g>\n");
}

/* ---- around them ---- */

static void swatch(struct buf *out, unsigned *x, uint32_t fill)
{
	buf_printf(out,
		"<rect x=\"%u\" y=\"48\" width=\"12\" height=\"12\" rx=\"2\" fill=\"#%06x\"/>\n",
		*x, fill);
	*x += 14;
}

/* The swatches of a tone, then its words. */
static void legend_entry(
	struct buf *out, unsigned *x, enum tone tone, bool inlined, const char *words)
{
	for (size_t i = 0; i < 3 && tones[tone].modules[i]; i++)
		swatch(out, x, colour(tone, tones[tone].modules[i], "", inlined));
	*x += 3;
	buf_printf(out, "<text class=\"soft\" x=\"%u\" y=\"58\">%s</text>\n", *x, words);
	*x += 7 * (unsigned)strlen(words) + 18;
}

static void legend(struct flame *g)
{
	unsigned x = 10;

	for (enum tone tone = 0; tone < TONE_COUNT; tone++)
		if (g->tones[tone])
			legend_entry(g->out, &x, tone, false, tones[tone].words);
	if (g->inlined)
		legend_entry(g->out, &x, TONE_NATIVE, true, "inlined: lighter");
	if (!g->pruned)
		return;
	buf_printf(g->out, "<text class=\"soft\" x=\"%u\" y=\"58\">", x);
	words_count(g->out, g->pruned);
	buf_str(g->out, g->pruned == 1 ? " branch" : " branches");
	buf_printf(g->out, " narrower than %.2g%% not drawn (",
		g->min_percent);
	xml_share(g->out, g->pruned_percent);
	buf_str(g->out, " of all)</text>\n");
}

static void add_without_newline(struct buf *out, const struct buf *words)
{
	struct buf line = {0};

	if (words->data)
		buf_add(&line, words->data, words->len && words->data[words->len - 1] == '\n'
						    ? words->len - 1
						    : words->len);
	out->failed |= words->failed || line.failed;
	if (line.data)
		buf_xml(out, line.data);
	buf_release(&line);
}

#define HINT "Click a box to zoom, / searches (a regular expression), Esc resets, arrow keys walk"

static void header(struct flame *g)
{
	struct buf words = {0};

	buf_printf(g->out,
		"<g id=\"header\">\n<rect id=\"bar\" width=\"100%%\" height=\"%d\"/>\n"
		"<text class=\"ink title\" x=\"10\" y=\"21\">",
		HEADER_PX - 3);
	facts_headline(g->p, g->plain, &words);
	add_without_newline(g->out, &words);
	buf_clear(&words);
	buf_str(g->out, "</text>\n<text class=\"soft\" x=\"10\" y=\"40\">");
	facts_quality(g->p, g->plain, &words);
	add_without_newline(g->out, &words);
	buf_release(&words);
	buf_str(g->out, "</text>\n");
	legend(g);
	buf_printf(g->out,
		"<text class=\"ink\" id=\"details\" x=\"10\" y=\"79\" data-hint=\"%s\"> </text>\n"
		"<svg x=\"100%%\" overflow=\"visible\"><g transform=\"translate(-270 0)\">\n"
		"<rect id=\"shade\" class=\"gone\" x=\"-10\" width=\"280\" height=\"64\"/>\n"
		"<foreignObject id=\"find\" class=\"gone\" x=\"0\" y=\"8\" width=\"260\" "
		"height=\"24\">"
		"<input xmlns=\"http://www.w3.org/1999/xhtml\" id=\"q\" type=\"search\" "
		"aria-label=\"Search functions\" placeholder=\"Search (regular expression)\"/>"
		"</foreignObject>\n"
		"<text class=\"ink\" id=\"matched\" x=\"0\" y=\"50\" role=\"status\"></text>\n"
		"<text class=\"link gone\" id=\"reset\" x=\"260\" y=\"50\" text-anchor=\"end\" "
		"role=\"button\" tabindex=\"0\">Reset zoom</text>\n"
		"</g></svg>\n"
		"<line id=\"rule\" x1=\"0\" x2=\"100%%\" y1=\"%d\" y2=\"%d\"/>\n</g>\n",
		HINT, HEADER_PX - 4, HEADER_PX - 4);
}

static void document(struct flame *g)
{
	struct buf words = {0};
	unsigned height = HEADER_PX + (g->max_depth + 1) * ROW_PX + FOOTER_PX;

	facts_headline(g->p, g->plain, &words);
	buf_printf(g->out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" id=\"sonde\" width=\"100%%\" "
		"height=\"%u\" "
		"data-row=\"%d\">\n<title>",
		height, ROW_PX);
	add_without_newline(g->out, &words);
	buf_printf(g->out, "</title>\n<style><![CDATA[\n%s]]></style>\n", flame_css);
	buf_str(g->out, "<rect id=\"paper\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
	boxes(g);
	header(g);
	buf_printf(g->out, "<script><![CDATA[\n%s]]></script>\n</svg>\n", flame_js);
	buf_release(&words);
}

int view_svg(
	const struct profile *p, const struct view_options *o, struct buf *out, struct err *err)
{
	struct term plain = {.unicode = true};
	struct flame g = {.p = p, .plain = &plain, .out = out, .inverted = o->inverted};
	int rc = profile_tree_build(p, o->inverted, &g.tree, err);

	if (!rc && !o->inverted && p->wakers_known)
		rc = profile_wakes_build(p, &g.tree, &g.wakes, err);
	if (rc) {
		profile_tree_release(&g.tree);
		return rc;
	}
	g.x = calloc(g.tree.nodes.len, sizeof(*g.x));
	g.depth = calloc(g.tree.nodes.len, sizeof(*g.depth));
	if (g.x && g.depth) {
		lay_out(&g);
		document(&g);
	}
	rc = !g.x || !g.depth || out->failed ? err_nomem(err) : 0;
	free(g.x);
	free(g.depth);
	vec_release(&g.chain);
	profile_wakes_release(&g.wakes);
	profile_tree_release(&g.tree);
	return rc;
}
