-- Objects of the C library, freed by functions that LuaJIT looks up in the C library's handle.
--
-- usage: free.lua MIB
local ffi = require("ffi")
ffi.cdef("char *strdup(const char *text); void *realloc(void *at, size_t size); void free(void *at);")
local libc = ffi.load("libc.so.6")
local function text(index) return (index .. " "):rep(150) end
local count = tonumber(arg[1]) * 1024
local all = {}
for index = 1, count do all[index] = libc.strdup(text(index)) end
for index = 1, count, 3 do all[index] = ffi.cast("char *", libc.realloc(all[index], 3000)) end
for index = 1, count do
    assert(ffi.string(all[index]) == text(index))
    libc.free(all[index])
end
print(count .. " texts")
