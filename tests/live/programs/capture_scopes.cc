/* SPDX-License-Identifier: BSD-2-Clause */
/* libsonde-capture from C++: marks as scopes, also those that an exception leaves, and objects that are made before main
 * and destroyed after it. */
#include <sonde/capture.h>

#include <cstdio>
#include <string>

namespace {

class Scope {
public:
	explicit Scope(const std::string &name) : begin_(sonde_mark_begin()), name_(name) {}
	~Scope() { sonde_mark_end(begin_, "scope", name_.c_str(), ""); }

private:
	Scope(const Scope &);
	Scope &operator=(const Scope &);
	uint64_t begin_;
	std::string name_;
};

struct Whole {
	uint32_t counter;
	Whole() : counter(sonde_counter_define("objects", "living", "objects that live", SONDE_COUNTER_INT64))
	{
		sonde_counter_set(counter, 1);
	}
	~Whole()
	{
		sonde_counter_set(counter, 0);
		sonde_mark(sonde_clock(), 0, "scope", "destroyed", "");
	}
};

Whole whole;

void inner(bool fails)
{
	Scope scope(fails ? "inner-fails" : "inner");

	if (fails)
		throw 5;
}

}

int main()
{
	{
		Scope scope("outer");

		inner(false);
		try {
			inner(true);
		} catch (int) {
			sonde_log("scope", SONDE_INFO, "caught");
		}
	}
	std::printf("done\n");
	return 0;
}
