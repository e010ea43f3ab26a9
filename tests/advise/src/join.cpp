// A hash join: a table of one relation, probed by another in order of arrival, and a sum by group.
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
    const uint32_t rows = argc > 1 ? std::atoi(argv[1]) : 3000000;
    uint64_t seed = 3;
    auto next = [&] {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(seed >> 33);
    };
    std::vector<Row> build(rows), probe(2 * rows);
    for (uint32_t at = 0; at < rows; at++) build[at] = {at, next() % 1000, next()};
    for (auto &row : probe) row = {next() % (rows + rows / 2), 0, next()};
    std::unordered_map<uint32_t, uint32_t> table;
    table.reserve(rows);
    for (uint32_t at = 0; at < rows; at++) table.emplace(build[at].key, at);
    std::vector<uint64_t> groups(1000);
    for (const auto &row : probe)
        if (auto found = table.find(row.key); found != table.end())
            groups[build[found->second].group] += row.value ^ build[found->second].value;
    uint64_t sum = 0;
    for (uint64_t group : groups) sum = sum * 31 + group;
    std::printf("%llu\n", static_cast<unsigned long long>(sum));
}
