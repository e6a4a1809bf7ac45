/* Two small programs in one, linked statically.
   pause: the process that holds a pod's namespaces.
   pause owner: process 1 of a cluster's namespaces. Ends when its standard input does, which is when the test process
   that holds the other end is gone, however it went; the kernel then ends everything else in them. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void bye(int sig) { (void)sig; _exit(0); }

static void reap(int sig) {
    (void)sig;
    while (waitpid(-1, 0, WNOHANG) > 0) {}
}

int main(int argc, char **argv) {
    struct pollfd in = {0, POLLIN, 0};
    char byte;
    signal(SIGTERM, bye);
    signal(SIGINT, bye);
    signal(SIGCHLD, reap);
    if (argc < 2 || strcmp(argv[1], "owner") != 0)
        for (;;) pause();
    for (;;)
        if (poll(&in, 1, -1) > 0 && read(0, &byte, 1) == 0) return 0;
}
