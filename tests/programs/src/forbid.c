/* Runs a program that may not make some system calls, as a container's filter has it.
 *
 * forbid NUMBER[=ERROR],... PROGRAM [ARGS]
 *
 * A call fails with ERROR, or with EPERM.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "check.h"

enum { MOST = 200 };

int main(int argc, char **argv) {
    CHECK(argc > 2);
    struct sock_filter rules[2 * MOST + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    unsigned short count = 1;
    for (char *at = argv[1]; *at != '\0';) {
        unsigned number = strtoul(at, &at, 10), error = EPERM;
        if (*at == '=')
            error = strtoul(at + 1, &at, 10);
        CHECK((*at == ',' || *at == '\0') && count < 2 * MOST);
        at += *at == ',';
        rules[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    }
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {count, rules};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    execvp(argv[2], argv + 2);
    CHECK(!"executed");
}
