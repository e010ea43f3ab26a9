// The components of a random graph in compressed rows: labels sink along edges until none changes.
// Edges are read in a row, labels at random.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char **argv) {
    const uint32_t nodes = argc > 1 ? std::atoi(argv[1]) : 1500000, degree = 12;
    uint64_t seed = 1;
    auto next = [&] {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(seed >> 33);
    };
    std::vector<uint64_t> first(nodes + 1);
    for (uint32_t node = 0; node < nodes; node++) first[node + 1] = first[node] + next() % (2 * degree);
    std::vector<uint32_t> targets(first[nodes]);
    for (auto &target : targets) target = next() % nodes;
    std::vector<uint32_t> labels(nodes);
    for (uint32_t node = 0; node < nodes; node++) labels[node] = node;
    uint32_t rounds = 0;
    for (bool changed = true; changed; rounds++) {
        changed = false;
        for (uint32_t node = 0; node < nodes; node++) {
            uint32_t least = labels[node];
            for (uint64_t edge = first[node]; edge < first[node + 1]; edge++)
                least = std::min(least, labels[targets[edge]]);
            if (least == labels[node]) continue;
            labels[node] = least;
            changed = true;
        }
    }
    uint64_t sum = 0;
    for (uint32_t label : labels) sum += label;
    std::printf("%u %llu\n", rounds, static_cast<unsigned long long>(sum));
}
