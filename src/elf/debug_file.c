/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the debug sections of a file are when they are not in it (GDB manual, "Debugging
 * Information in Separate Files"): DIR/.build-id/xx/yyyy.debug when the file has a build id, else
 * the name and CRC in .gnu_debuglink, looked for beside the file, in .debug beside it, and under
 * DIR. A candidate counts only when it proves to be the right one, by build id or by CRC.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <zlib.h>

#include "base/cursor.h"
#include "base/in_root.h"
#include "elf/elf_priv.h"

#define DEFAULT_DEBUG_DIR "/usr/lib/debug"

/* Opens `path` below `root` as an ELF file; NULL when that cannot be. */
static struct elf_file *open_candidate(const char *root, const char *path)
{
	struct elf_file *found = NULL;
	int fd = in_root_open(root, path, false);

	if (fd >= 0 && elf_file_open_fd(fd, path, &found, NULL))
		return NULL;
	return found;
}

static bool same_id(const struct elf_file *f, const uint8_t *id, size_t len)
{
	return f->build_id_len == len && !memcmp(f->build_id, id, len);
}

static bool is_same_file(const struct elf_file *a, const struct elf_file *b)
{
	return a->image_size == b->image_size && !memcmp(a->image, b->image, a->image_size);
}

static struct elf_file *open_build_id(
	const char *root, const char *debug_dir, const uint8_t *id, size_t len)
{
	char path[PATH_MAX], hex[2 * 64 + 1];

	if (len < 2 || len > 64)
		return NULL;
	for (size_t i = 0; i < len; i++)
		snprintf(hex + 2 * i, 3, "%02x", id[i]);
	snprintf(path, sizeof(path), "%s/.build-id/%.2s/%s.debug", debug_dir, hex, hex + 2);
	struct elf_file *found = open_candidate(root, path);
	if (found && !same_id(found, id, len)) {
		elf_file_free(found);
		return NULL;
	}
	return found;
}

/* A debug file larger than this is not read whole to compute its CRC; the largest real ones (of
 * browsers) are half of it, and have build ids. A sparse file of terabytes costs its maker nothing. */
#define MAX_CRC_BYTES ((size_t)8 << 30)

static bool crc_matches(const struct elf_file *f, uint32_t want)
{
	if (f->image_size > MAX_CRC_BYTES)
		return false;

	uLong crc = crc32_z(0, f->image, f->image_size);

	return (uint32_t)crc == want;
}

/* A right build id spares reading the whole file for its CRC. */
static bool is_debug_of(
	const struct elf_file *f, const struct elf_file *candidate, uint32_t crc)
{
	if (f->build_id_len && candidate->build_id_len)
		return same_id(candidate, f->build_id, f->build_id_len) &&
			!is_same_file(f, candidate);
	return crc_matches(candidate, crc);
}

static struct elf_file *try_link(
	const struct elf_file *f, const char *root, const char *path, uint32_t crc)
{
	struct elf_file *candidate = open_candidate(root, path);

	if (!candidate || is_debug_of(f, candidate, crc))
		return candidate;
	elf_file_free(candidate);
	return NULL;
}

/* .gnu_debuglink: a file name, NUL, padding to 4 bytes, the CRC. */
static bool read_debuglink(struct elf_file *f, const char **ret_name, uint32_t *ret_crc)
{
	struct elf_section s;

	if (!elf_file_section(f, ".gnu_debuglink", &s))
		return false;
	struct cursor c = cursor_over(s.bytes, s.size);
	*ret_name = cursor_cstr(&c);
	cursor_skip(&c, -(strlen(*ret_name) + 1) & 3);
	*ret_crc = cursor_u32(&c);
	return !c.bad && **ret_name && !strchr(*ret_name, '/') && strlen(*ret_name) <= NAME_MAX;
}

static struct elf_file *open_by_link(struct elf_file *f, const char *root, const char *debug_dir)
{
	char path[PATH_MAX];
	const char *link;
	uint32_t crc;

	if (!read_debuglink(f, &link, &crc))
		return NULL;

	size_t root_len = strlen(root);
	const char *name = f->name + (root_len && !strncmp(f->name, root, root_len) ? root_len : 0);
	const char *slash = strrchr(name, '/');
	int dir_len = slash ? (int)(slash - name) : 0;

	if (!slash || dir_len > PATH_MAX / 2)
		return NULL;
	const struct {
		const char *before, *between;
	} places[] = {{"", ""}, {"", "/.debug"}, {debug_dir, ""}};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if ((size_t)snprintf(path, sizeof(path), "%s%.*s%s/%s", places[i].before, dir_len,
			    name, places[i].between, link) >= sizeof(path))
			continue;
		struct elf_file *found = try_link(f, root, path, crc);
		if (found)
			return found;
	}
	return NULL;
}

int elf_file_open_debug_in(struct elf_file *f, const char *root, const char *debug_dir,
	struct elf_file **ret, struct err *err)
{
	if (!debug_dir)
		debug_dir = DEFAULT_DEBUG_DIR;
	*ret = open_build_id(root, debug_dir, f->build_id, f->build_id_len);
	if (!*ret)
		*ret = open_by_link(f, root, debug_dir);
	return 0;
}

int elf_file_open_debug(
	struct elf_file *f, const char *root, struct elf_file **ret, struct err *err)
{
	return elf_file_open_debug_in(f, root, NULL, ret, err);
}

/* .gnu_debugaltlink: a path, NUL, a build id ("dwz" files shared by the parts of a package). */
int elf_file_open_alt(struct elf_file *f, const char *root, const char *debug_dir,
	struct elf_file **ret, struct err *err)
{
	struct elf_section s;

	*ret = NULL;
	if (!elf_file_section(f, ".gnu_debugaltlink", &s))
		return 0;
	struct cursor c = cursor_over(s.bytes, s.size);
	const char *link = cursor_cstr(&c);
	size_t id_len = cursor_left(&c);
	const uint8_t *id = cursor_bytes(&c, id_len);

	if (!id || !id_len)
		return err_set(err, EINVAL, "%s: .gnu_debugaltlink is broken", f->name);
	*ret = open_build_id(root, debug_dir ? debug_dir : DEFAULT_DEBUG_DIR, id, id_len);
	if (*ret)
		return 0;

	char path[PATH_MAX];
	const char *slash = strrchr(f->name, '/');
	int dir_len = slash && *link != '/' ? (int)(slash - f->name) + 1 : 0;
	if ((size_t)snprintf(path, sizeof(path), "%.*s%s", dir_len, f->name, link) >= sizeof(path))
		return 0;
	*ret = open_candidate(root, path);
	if (*ret && !same_id(*ret, id, id_len)) {
		elf_file_free(*ret);
		*ret = NULL;
	}
	return 0;
}
