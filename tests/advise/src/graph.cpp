// Components and distances of a random graph in compressed rows: random reads over all of it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char **argv) {
    const uint32_t nodes = argc > 1 ? std::atoi(argv[1]) : 2000000, degree = 12;
    uint64_t seed = 1;
    auto next = [&] {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(seed >> 33);
    };
    std::vector<uint64_t> first(nodes + 1);
    for (uint32_t node = 0; node < nodes; node++) first[node + 1] = first[node] + 1 + next() % (2 * degree);
    std::vector<uint32_t> targets(first[nodes]);
    for (auto &target : targets) target = next() % nodes;
    uint64_t sum = 0;
    for (uint32_t start = 0; start < 3; start++) {
        std::vector<uint32_t> distance(nodes, UINT32_MAX), queue{start};
        distance[start] = 0;
        for (size_t at = 0; at < queue.size(); at++) {
            const uint32_t node = queue[at];
            for (uint64_t edge = first[node]; edge < first[node + 1]; edge++) {
                uint32_t &other = distance[targets[edge]];
                if (other == UINT32_MAX) {
                    other = distance[node] + 1;
                    queue.push_back(targets[edge]);
                }
            }
        }
        for (uint32_t one : queue) sum += distance[one];
    }
    std::printf("%llu\n", static_cast<unsigned long long>(sum));
}
