/* A copy of glibc's variable __libc_single_threaded, for libmillrace.so alone. The library's objects are those of the
 * program, which address variables directly; a shared library cannot address another library's variable so. Always 0:
 * the process may have several threads, so reference counts are atomic. */
    .section .rodata
    .globl __libc_single_threaded
    .hidden __libc_single_threaded
__libc_single_threaded:
    .byte 0
    .section .note.GNU-stack,"",%progbits
