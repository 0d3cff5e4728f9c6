// SPDX-License-Identifier: BSD-2-Clause
// A file that keeps a C++ compiler busy for a few seconds: many instances of <regex>.
#include <map>
#include <regex>
#include <string>
#include <vector>

template <int N> struct pattern {
	static std::vector<std::string> words(const std::string &text)
	{
		std::regex re("([a-z]{" + std::to_string(N + 1) + "})-(\\d+)|(.*)x{2,}");
		std::vector<std::string> found;
		for (std::sregex_iterator it(text.begin(), text.end(), re), end; it != end; ++it)
			found.push_back((*it)[1].str() + pattern<N - 1>::words(text).front());
		return found.empty() ? std::vector<std::string>{""} : found;
	}
	static std::map<std::string, std::wstring> wide(const std::wstring &text)
	{
		std::wregex re(L"(\\w+)\\s*=\\s*(\\w+)");
		std::map<std::string, std::wstring> found;
		std::wsmatch m;
		if (std::regex_search(text, m, re))
			found[std::to_string(N)] = std::regex_replace(m[1].str(), re, L"$2");
		return found;
	}
};
template <> struct pattern<0> {
	static std::vector<std::string> words(const std::string &)
	{
		return {""};
	}
};

int main(int argc, char **argv)
{
	size_t n = 0;
	for (int i = 1; i < argc; i++)
		n += pattern<12>::words(argv[i]).size() + pattern<3>::wide(L"a = b").size();
	return n == 0;
}
