// A hash join: a table of the smaller relation, probed by the larger one in a row; sums by group;
// the larger relation sorted by what was found.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <vector>

struct Row {
    uint32_t key, group;
    uint64_t value;
};

int main(int argc, char **argv) {
    const uint32_t rows = argc > 1 ? std::atoi(argv[1]) : 6000000, keys = rows / 16;
    uint64_t seed = 3;
    auto next = [&] {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(seed >> 33);
    };
    std::vector<Row> build(keys), probe(rows);
    for (uint32_t at = 0; at < keys; at++) build[at] = {at * 7, next() % 1000, next()};
    for (auto &row : probe) row = {next() % (keys + keys / 2) * 7, 0, next()};
    std::unordered_map<uint32_t, uint32_t> table;
    table.reserve(keys);
    for (uint32_t at = 0; at < keys; at++) table.emplace(build[at].key, at);
    std::vector<uint64_t> groups(1000);
    for (auto &row : probe)
        if (auto found = table.find(row.key); found != table.end()) {
            row.group = build[found->second].group;
            groups[row.group] += row.value ^ build[found->second].value;
        }
    std::sort(probe.begin(), probe.end(), [](const Row &one, const Row &other) {
        return one.group != other.group ? one.group < other.group : one.value < other.value;
    });
    uint64_t sum = probe[rows / 2].value;
    for (uint64_t group : groups) sum = sum * 31 + group;
    std::printf("%llu\n", static_cast<unsigned long long>(sum));
}
