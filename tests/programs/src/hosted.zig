// A Zig program without a C library: memory from the kernel, threads, and growing lists.
const std = @import("std");

const words = MIB << 17;
const memory = std.heap.page_allocator;

fn fill(part: []u64, first: u64) void {
    for (part, first..) |*word, number| word.* = number *% 0x9e3779b97f4a7c15;
}

pub fn main() !void {
    const data = try memory.alloc(u64, words);
    const half = words / 2;
    const other = try std.Thread.spawn(.{}, fill, .{ data[half..], half });
    fill(data[0..half], 0);
    other.join();
    var sum: u64 = 0;
    for (data) |word| sum = sum *% 31 +% word;
    // Each is freed when the next one is there.
    var list = try memory.alloc(u64, 1000);
    @memset(list, 1);
    while (list.len < words / 4) {
        const next = try memory.alloc(u64, list.len * 2);
        @memcpy(next[0..list.len], list);
        for (next[list.len..], list) |*to, from| to.* = from *% 3 +% 1;
        memory.free(list);
        list = next;
    }
    for (list) |word| sum = sum *% 31 +% word;
    memory.free(list);
    memory.free(data);
    var line: [100]u8 = undefined;
    const text = try std.fmt.bufPrint(&line, "{d} {d}\n", .{ words, sum });
    _ = std.os.linux.write(1, text.ptr, text.len);
}
