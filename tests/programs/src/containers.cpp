// Containers of small objects: many small allocations, touched along pointers.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

int main(int argc, char **argv) {
    const uint64_t n = argc > 1 ? strtoull(argv[1], nullptr, 10) : 100000;
    std::map<uint64_t, uint64_t> ordered;
    std::unordered_map<uint64_t, std::string> hashed;
    std::vector<std::unique_ptr<uint64_t[]>> objects;
    for (uint64_t i = 0; i < n; i++) {
        // Keys grow with a little disorder, as identifiers and times do.
        ordered[i * 16 + mix(i) % 64] = i;
        hashed.emplace(i, "value " + std::to_string(mix(i)) + " of a key");
        objects.push_back(std::make_unique<uint64_t[]>(1 + i % 16));
        objects.back()[0] = mix(i);
    }
    uint64_t wrong = 0, sum = 0, previous = 0;
    for (auto &[key, value] : ordered) {
        wrong += key < previous;
        previous = key;
        sum = mix(sum ^ key) + value;
    }
    for (uint64_t i = 0; i < n; i += 3)
        wrong += hashed.erase(i) != 1;
    for (uint64_t i = 0; i < n; i++) {
        auto found = hashed.find(i);
        if (i % 3 == 0)
            wrong += found != hashed.end();
        else
            wrong += found->second != "value " + std::to_string(mix(i)) + " of a key";
        wrong += objects[i][0] != mix(i);
    }
    objects.erase(objects.begin(), objects.begin() + n / 2);
    objects.shrink_to_fit();
    for (auto &object : objects)
        sum += object[0];
    printf("wrong %lu, entries %zu, checksum %016lx\n", wrong, ordered.size() + hashed.size() + objects.size(), sum);
    return wrong != 0;
}
