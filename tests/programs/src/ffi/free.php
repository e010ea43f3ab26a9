<?php
/* Objects of the C library, freed by functions that PHP's FFI looks up in the C library's handle.
 *
 * usage: free.php MIB
 */
$libc = FFI::cdef("char *strdup(const char *text); void *realloc(void *at, size_t size); void free(void *at);", "libc.so.6");
$text = fn(int $index): string => str_repeat("$index ", 150);
$count = (int)$argv[1] << 10;
$all = [];
for ($index = 0; $index < $count; $index++) {
    $all[] = $libc->strdup($text($index));
}
for ($index = 0; $index < $count; $index += 3) {
    $all[$index] = $libc->cast("char *", $libc->realloc($all[$index], 3000));
}
foreach ($all as $index => $at) {
    if (FFI::string($at) !== $text($index)) {
        exit(9);
    }
    $libc->free($at);
}
echo "$count texts\n";
