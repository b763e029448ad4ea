/* A wall clock that is CLOCK_SHIFT_SECONDS ahead (or behind, if negative), for processes that preload this.

   Debian's libfaketime (0.9.10) cannot be used: with it Python's time.sleep ends with EINVAL.
   Clocks that only measure lengths of time stay as they are. Times until which is waited are given by the shifted clock,
   and the kernel knows only its own; whatever is that large is a time of day. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define TIME_OF_DAY 1000000000

static time_t shift(void) {
    const char *said = getenv("CLOCK_SHIFT_SECONDS");
    return said ? atol(said) : 0;
}

static void *next(const char *name) {
    void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    return found ? found : dlsym(RTLD_NEXT, name);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    int failed = syscall(SYS_gettimeofday, at, zone);
    if (!failed) at->tv_sec += shift();
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *at, int base) { return clock_gettime(CLOCK_REALTIME, at) ? 0 : base; }

static struct timespec kernels(const struct timespec *until) {
    struct timespec at = *until;
    if (at.tv_sec > TIME_OF_DAY) at.tv_sec -= shift();
    return at;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) real = next("pthread_cond_timedwait");
    struct timespec at = kernels(until);
    return real(condition, mutex, &at);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*real)(pthread_mutex_t *, const struct timespec *);
    if (!real) real = next("pthread_mutex_timedlock");
    struct timespec at = kernels(until);
    return real(mutex, &at);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    static int (*real)(sem_t *, const struct timespec *);
    if (!real) real = next("sem_timedwait");
    struct timespec at = kernels(until);
    return real(semaphore, &at);
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until) {
    static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
    if (!real) real = next("cnd_timedwait");
    struct timespec at = kernels(until);
    return real(condition, mutex, &at);
}

int mtx_timedlock(mtx_t *mutex, const struct timespec *until) {
    static int (*real)(mtx_t *, const struct timespec *);
    if (!real) real = next("mtx_timedlock");
    struct timespec at = kernels(until);
    return real(mutex, &at);
}
