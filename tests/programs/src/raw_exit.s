# A program without any library: it fills memory, and ends its only thread, not the process.
.globl _start
_start:
    mov $9, %eax
    xor %edi, %edi
    mov $BYTES, %esi
    mov $3, %edx
    mov $0x22, %r10d
    mov $-1, %r8
    xor %r9d, %r9d
    syscall
    mov %rax, %rdi
    mov $(BYTES / 8), %ecx
    mov $77, %eax
    rep stosq
    mov $60, %eax
    mov $37, %edi
    syscall
