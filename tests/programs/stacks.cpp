#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>
#include <time.h>
static volatile unsigned long sink;
__attribute__((noinline)) static unsigned long work(int depth, std::vector<std::string> &words) {
    if (depth == 0) {
        std::sort(words.begin(), words.end(), [](const std::string &a, const std::string &b) {
            sink += a.size();
            return sink % 2 ? a < b : b.size() < a.size() || (a.size() == b.size() && a < b);
        });
        return words.size();
    }
    alignas(32) volatile char room[96];
    room[depth % 96] = depth;
    return work(depth - 1, words) + room[depth % 96];
}
extern "C" __attribute__((noinline)) long nap(int depth) {
    if (depth == 0) {
        timespec t = {0, 1000000};
        return nanosleep(&t, nullptr);
    }
    std::function<long()> next = [depth] { return nap(depth - 1); };
    return next() + 1;
}
int main() {
    std::thread sleeper([] { for (;;) sink += nap(12); });
    puts("ready");
    fflush(stdout);
    for (;;) {
        std::vector<std::string> words;
        for (int i = 0; i < 3000; i++) words.push_back(std::to_string(i * 7919 % 10007));
        std::stable_sort(words.begin(), words.end());
        sink += work(20, words) + std::stoul(words[0]);
    }
}
