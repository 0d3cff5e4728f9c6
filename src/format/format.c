/* SPDX-License-Identifier: BSD-2-Clause */
#include "format/format.h"

#include <string.h>

const struct format_ops *const formats[] = {
	&format_folded,
	&format_pprof,
	&format_speedscope,
	NULL,
};

const struct format_ops *format_by_name(const char *name)
{
	for (const struct format_ops *const *f = formats; *f; f++)
		if (!strcmp((*f)->name, name))
			return *f;
	return NULL;
}

const struct format_ops *format_by_path(const char *path)
{
	const struct format_ops *best = NULL;
	size_t path_len = strlen(path), best_len = 0;

	for (const struct format_ops *const *f = formats; *f; f++) {
		for (size_t i = 0; i < FORMAT_MAX_EXTENSIONS && (*f)->extensions[i]; i++) {
			const char *ext = (*f)->extensions[i];
			size_t len = strlen(ext);

			if (len <= best_len || len > path_len || strcmp(path + path_len - len, ext))
				continue;
			best = *f;
			best_len = len;
		}
	}
	return best;
}
