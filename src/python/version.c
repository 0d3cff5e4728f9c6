/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which Python it is. 3.13 and later say it in the first bytes of _PyRuntime, 3.11 and later in Py_Version,
 * all of them in the text that Py_GetVersion() made ("3.8.18 (default, May  9 2026, ...) \n[GCC 12.2.0]", from 3.10 on
 * without the line break), which is in the writable data of the file. Where nothing of it is to be had, the layouts of 3.8 to 3.10 are tried, and exactly
 * one must fit.
 */
#include "base/cleanup.h"
#include "python/python_priv.h"

#define COOKIE "xdebugpy" /* _Py_Debug_Cookie */
#define MOST_DATA_BYTES ((uint64_t)64 << 20)
#define PIECE_BYTES ((size_t)256 << 10)
#define TEXT_BYTES 256 /* of Py_GetVersion()'s buffer: 250 */
#define FINAL 0xf0u

struct version_text {
	unsigned minor, patch;
	unsigned level; /* the last byte of PY_VERSION_HEX */
	bool free_threaded;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* One or two digits. */
static bool take_number(const char **at, unsigned *ret)
{
	const char *c = *at;

	if (!is_digit(*c))
		return false;
	*ret = (unsigned)(*c++ - '0');
	if (is_digit(*c))
		*ret = *ret * 10 + (unsigned)(*c++ - '0');
	*at = c;
	return !is_digit(*c);
}

/* "a1", "b2", "rc1", or nothing; then maybe "+". */
static void take_level(const char **at, unsigned *ret)
{
	static const char *const words[] = {"a", "b", "rc"};
	unsigned serial;

	*ret = FINAL;
	for (unsigned i = 0; i < 3; i++) {
		size_t len = strlen(words[i]);
		const char *digits = *at + len;

		if (!strncmp(*at, words[i], len) && take_number(&digits, &serial)) {
			*ret = (0xa + i) << 4 | (serial & 15);
			*at = digits;
			break;
		}
	}
	if (**at == '+')
		++*at;
}

/* `text` ends in NUL. The compiler in brackets behind it tells it from any other text that begins so. */
static bool parse_text(const char *text, struct version_text *ret)
{
	const char *at = text + 2, *end;

	if (strncmp(text, "3.", 2) != 0 || !take_number(&at, &ret->minor) || *at++ != '.' ||
		!take_number(&at, &ret->patch))
		return false;
	take_level(&at, &ret->level);
	ret->free_threaded = !strncmp(at, " experimental free-threading", 28) ||
		!strncmp(at, " free-threading", 15);
	if (ret->free_threaded && !(at = strstr(at, " (")))
		return false;
	if (strncmp(at, " (", 2) != 0)
		return false;
	end = strstr(at, ") ");
	return end && (end[2] == '[' || (end[2] == '\n' && end[3] == '[')) && strchr(end, ']');
}

static bool find_in_piece(const char *piece, size_t len, struct version_text *ret)
{
	char text[TEXT_BYTES + 1];
	const char *at = piece, *end = piece + len;

	while (at < end && (at = (const char *)memchr(at, '3', (size_t)(end - at)))) {
		size_t left = (size_t)(end - at) < TEXT_BYTES ? (size_t)(end - at) : TEXT_BYTES;

		if (left > 2 && at[1] == '.') {
			memcpy(text, at, left);
			text[left] = 0;
			if (parse_text(text, ret))
				return true;
		}
		at++;
	}
	return false;
}

/* Pages that cannot be read are zeros: between two parts of the data there may be a hole. */
static void read_piece(struct python *p, uint64_t at, char *piece, size_t len)
{
	const struct python_memory *m = &p->pages.memory;

	if (m->read(m->ctx, at, piece, len))
		return;
	memset(piece, 0, len);
	for (size_t done = 0, part; done < len; done += part) {
		part = PYTHON_PAGE_BYTES - (at + done) % PYTHON_PAGE_BYTES;
		if (part > len - done)
			part = len - done;
		if (!m->read(m->ctx, at + done, piece + done, part))
			memset(piece + done, 0, part);
	}
}

static bool find_text(struct python *p, struct version_text *ret)
{
	uint64_t at = p->place.data_start, end = p->place.data_end;
	autofree char *piece = malloc(PIECE_BYTES);

	if (!piece || end <= at)
		return false;
	if (end - at > MOST_DATA_BYTES)
		end = at + MOST_DATA_BYTES;
	while (at < end) {
		size_t len = end - at < PIECE_BYTES ? end - at : PIECE_BYTES;

		read_piece(p, at, piece, len);
		if (find_in_piece(piece, len, ret))
			return true;
		if (len < PIECE_BYTES)
			break;
		at += len - TEXT_BYTES;
	}
	return false;
}

static const char *level_word(unsigned level)
{
	switch (level >> 4) {
	case 0xa:
		return "a";
	case 0xb:
		return "b";
	case 0xc:
		return "rc";
	default:
		return "";
	}
}

static void set_version(struct python *p, uint32_t version, bool free_threaded)
{
	unsigned level = version & 0xff;
	char serial[8] = "";

	p->version = version;
	p->minor = version >> 16 & 0xff;
	p->free_threaded = free_threaded;
	if (*level_word(level))
		snprintf(serial, sizeof(serial), "%u", level & 15);
	snprintf(p->version_text, sizeof(p->version_text), "%u.%u.%u%s%s%s", version >> 24, p->minor,
		version >> 8 & 0xff, level_word(level), serial, free_threaded ? " free-threaded" : "");
}

static bool is_version(uint64_t version)
{
	return version >> 24 == 3;
}

/* False: the process does not say it. */
static bool told_version(struct python *p)
{
	uint8_t head[24];
	uint64_t words[3];
	uint32_t version;
	struct version_text text;

	if (python_read(p, p->place.runtime, head, sizeof(head)) && !memcmp(head, COOKIE, 8)) {
		memcpy(words, head, sizeof(words));
		if (is_version(words[1])) {
			set_version(p, (uint32_t)words[1], words[2] != 0);
			return true;
		}
	}
	if (p->place.version_at && python_read_u32(p, p->place.version_at, &version) &&
		is_version(version)) {
		set_version(p, version, false);
		return true;
	}
	if (!find_text(p, &text))
		return false;
	set_version(p, 3u << 24 | text.minor << 16 | text.patch << 8 | text.level, text.free_threaded);
	return true;
}

static int refuse(struct python *p, struct err *err)
{
	if (p->minor < 8)
		return err_set(err, EOPNOTSUPP, "Python %s is too old: stacks are read from 3.8 on",
			p->version_text);
	return err_set(err, EOPNOTSUPP, "where Python %s keeps its stacks is not known to this sonde",
		p->version_text);
}

/* From 3.13 on the process knows better where its fields are. */
static int take_own(struct python *p, struct err *err)
{
	size_t bytes = python_layout_own_bytes(p->version, p->free_threaded);
	uint8_t table[PYTHON_OWN_MOST];
	int bad;

	if (!bytes)
		return 0;
	if (bytes > sizeof(table) || !python_read(p, p->place.runtime, table, bytes))
		return err_set(err, EFAULT, "the memory of Python %s's runtime cannot be read",
			p->version_text);
	if (memcmp(table, COOKIE, 8) != 0)
		return err_set(err, EOPNOTSUPP, "Python %s's runtime is not where its symbol says",
			p->version_text);
	bad = python_layout_from_own(p->version, p->free_threaded, table, bytes, &p->layout, err);
	return bad ? err_prefix(err, "Python %s", p->version_text) : 0;
}

/* aarch64 with musl has mutexes as large as x86-64. */
static int try_layouts(struct python *p, struct err *err)
{
	int bad = -EOPNOTSUPP;

	for (int glibc_arm = p->place.aarch64; glibc_arm >= 0 && bad == -EOPNOTSUPP; glibc_arm--) {
		if (!python_layout_of(p->version, p->free_threaded, glibc_arm, &p->layout))
			return refuse(p, err);
		bad = take_own(p, err);
		if (bad)
			return bad;
		python_chain_layout_set(p);
		bad = python_check(p, err);
	}
	return bad;
}

/* Each of the versions that say nothing of themselves, and the one the file is called after first. */
static int try_versions(struct python *p, struct err *err)
{
	unsigned found = 0, hint = p->place.minor <= UINT8_MAX ? p->place.minor : 0;
	int bad = 0;

	for (unsigned minor = hint ? hint : 8; minor <= (hint ? hint : 10); minor++) {
		set_version(p, 3u << 24 | minor << 16, false);
		bad = try_layouts(p, err);
		if (bad && bad != -EOPNOTSUPP)
			return bad;
		if (!bad && found)
			return err_set(err, EOPNOTSUPP,
				"which version of Python this is cannot be told: it may be 3.%u or 3.%u",
				found, minor);
		if (!bad)
			found = minor;
	}
	if (!found)
		return hint ? bad :
			      err_set(err, EOPNOTSUPP, "which version of Python this is cannot be told");
	set_version(p, 3u << 24 | found << 16, false);
	snprintf(p->version_text, sizeof(p->version_text), "3.%u", found);
	p->code_type = 0;
	return try_layouts(p, err);
}

int python_find_version(struct python *p, struct err *err)
{
	if (told_version(p))
		return try_layouts(p, err);
	return try_versions(p, err);
}
