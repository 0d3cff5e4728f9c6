/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads libsonde-capture while it runs, from the path it is given, and unloads and loads it again; a thread that has
 * used it ends after that. */
#include <sonde/capture.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void (*mark_function)(uint64_t, uint64_t, const char *, const char *, const char *);
typedef int (*is_recording_function)(void);

static pthread_barrier_t marked, unloaded;
static mark_function mark;

static void *marks(void *arg)
{
	mark(1, 2, "loaded", "thread", "");
	pthread_barrier_wait(&marked);
	pthread_barrier_wait(&unloaded);
	return arg;
}

static void *function(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found)
		printf("no %s\n", name);
	return found;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	int i;

	pthread_barrier_init(&marked, NULL, 2);
	pthread_barrier_init(&unloaded, NULL, 2);
	for (i = 0; i < 2; i++) {
		void *library = dlopen(argc > 1 ? argv[1] : "libsonde-capture.so.0", RTLD_NOW);
		is_recording_function is_recording;
		void *address;

		if (!library) {
			printf("%s\n", dlerror());
			return 1;
		}
		address = function(library, "sonde_mark");
		memcpy(&mark, &address, sizeof(mark));
		address = function(library, "sonde_is_recording");
		memcpy(&is_recording, &address, sizeof(is_recording));
		printf("recording %d\n", is_recording());
		mark(10 + (uint64_t)i, 20, "loaded", i ? "again" : "first", "");
		if (!i) {
			pthread_create(&thread, NULL, marks, NULL);
			pthread_barrier_wait(&marked);
		}
		dlclose(library);
	}
	pthread_barrier_wait(&unloaded);
	pthread_join(thread, NULL);
	printf("done\n");
	return 0;
}
