// One of many objects for a linker: tables, and functions that read them. UNIT is its number.
#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
#define TABLE(n)                                     \
    int GLUE(table##n##_, UNIT)[1 << 15] = {UNIT, n}; \
    int GLUE(f##n##_, UNIT)(void) { return GLUE(table##n##_, UNIT)[0] + n; }

TABLE(0) TABLE(1) TABLE(2) TABLE(3) TABLE(4) TABLE(5)
TABLE(6) TABLE(7) TABLE(8) TABLE(9) TABLE(10) TABLE(11)
