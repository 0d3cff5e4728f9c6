/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/python.h"

#include "python/code.h"
#include "python/python_priv.h"

int python_new(const struct python_memory *memory, const struct python_place *place,
	struct python **ret, struct err *err)
{
	struct python *p = calloc(1, sizeof(*p));
	int bad;

	if (!p)
		return err_nomem(err);
	python_pages_init(&p->pages, memory);
	p->place = *place;
	p->look = 1;
	bad = python_find_version(p, err);
	if (bad) {
		python_free(p);
		return bad;
	}
	*ret = p;
	return 0;
}

void python_free(struct python *p)
{
	if (!p)
		return;
	if (p->objects_free)
		p->objects_free(p->objects);
	python_codes_free(p->codes);
	python_pages_release(&p->pages);
	free(p);
}

void python_refresh(struct python *p)
{
	p->look++;
	python_pages_refresh(&p->pages);
}

const struct python_layout *python_layout(const struct python *p)
{
	return &p->layout;
}

uint32_t python_version(const struct python *p)
{
	return p->version;
}

const char *python_version_text(const struct python *p)
{
	return p->version_text;
}

bool python_free_threaded(const struct python *p)
{
	return p->free_threaded;
}

uint64_t python_code_type(const struct python *p)
{
	return p->code_type;
}
