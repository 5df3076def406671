/*
 * What both checked programs share: their command line, the messages, waiting, and the client.
 *
 * Message k of a run with lengths `min` to `max` has `min + 7919 k mod (max - min + 1)` bytes. Byte
 * j is `31 k + 7 j mod 256`; but a message of 4 bytes or more begins with k, little endian.
 */
#ifndef CHECKED_H
#define CHECKED_H

#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aeronc.h"

enum {
    NUMBER_LENGTH = 4,
    PERIOD = 256,
    NUMBER_STEP = 31,
    BYTE_STEP = 7,
    /* 183 times 7 is 1 modulo 256: message k looks like the pattern from byte 31 * 183 * k on. */
    SHIFT = NUMBER_STEP * 183,
    LENGTH_STEP = 7919,
    YIELDS = 100,
    SLEEP_NS = 50 * 1000,
};

static volatile sig_atomic_t is_interrupted = 0;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    is_interrupted = 1;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, aeron_errmsg());
    exit(EXIT_FAILURE);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

typedef struct
{
    const char *channel;
    int32_t stream_id;
    uint64_t count;
    uint64_t minimum;
    uint64_t maximum;
    double timeout_s;
}
plan_t;

static uint64_t number_from(const char *text)
{
    char *end;
    const uint64_t number = strtoull(text, &end, 10);
    if (end == text || '\0' != *end)
    {
        fprintf(stderr, "not a number: %s\n", text);
        exit(EXIT_FAILURE);
    }
    return number;
}

static plan_t plan_from(int argc, char **argv)
{
    const bool has_timeout = 8 == argc && 0 == strcmp(argv[6], "--timeout");
    if (6 != argc && !has_timeout)
    {
        fprintf(stderr, "usage: %s CHANNEL STREAM_ID COUNT MIN MAX [--timeout SECONDS]\n", argv[0]);
        exit(EXIT_FAILURE);
    }
    const plan_t plan = {
        .channel = argv[1],
        .stream_id = (int32_t)strtol(argv[2], NULL, 10),
        .count = number_from(argv[3]),
        .minimum = number_from(argv[4]),
        .maximum = number_from(argv[5]),
        .timeout_s = has_timeout ? (double)number_from(argv[7]) : 60,
    };
    if (plan.maximum < plan.minimum || plan.maximum > INT32_MAX || plan.count > UINT32_MAX)
    {
        fprintf(stderr, "MIN is at most MAX, which is below 2^31; COUNT is below 2^32\n");
        exit(EXIT_FAILURE);
    }
    return plan;
}

/* Return enough of the pattern for each message to be a part of it. */
static const uint8_t *make_pattern(const plan_t *plan)
{
    const size_t length = plan->maximum + PERIOD;
    uint8_t *pattern = malloc(length);
    if (NULL == pattern)
    {
        perror("malloc");
        exit(EXIT_FAILURE);
    }
    for (size_t j = 0; j < length; j++)
    {
        pattern[j] = (uint8_t)(BYTE_STEP * j);
    }
    return pattern;
}

static inline size_t length_of(const plan_t *plan, uint64_t k)
{
    return (size_t)(plan->minimum + k * LENGTH_STEP % (plan->maximum - plan->minimum + 1));
}

static inline const uint8_t *body_of(const uint8_t *pattern, uint64_t k)
{
    return pattern + k * SHIFT % PERIOD;
}

static inline void put_number(uint8_t *number, uint64_t k)
{
    for (int j = 0; j < NUMBER_LENGTH; j++)
    {
        number[j] = (uint8_t)(k >> (8 * j));
    }
}

/* Who waits yields the processor for a while, then sleeps, and in the end gives up. */
typedef struct
{
    uint64_t idle_count;
    double since_s;
}
waiting_t;

static void wait_for(waiting_t *waiting, const plan_t *plan, const char *what)
{
    if (is_interrupted)
    {
        fprintf(stderr, "interrupted while waiting for %s\n", what);
        exit(EXIT_FAILURE);
    }
    if (++waiting->idle_count < YIELDS)
    {
        sched_yield();
        return;
    }
    if (YIELDS == waiting->idle_count)
    {
        waiting->since_s = now_s();
    }
    else if (now_s() - waiting->since_s > plan->timeout_s)
    {
        fprintf(stderr, "no %s within %g s\n", what, plan->timeout_s);
        exit(EXIT_FAILURE);
    }
    const struct timespec pause = {.tv_sec = 0, .tv_nsec = SLEEP_NS};
    nanosleep(&pause, NULL);
}

/* The driver is the one whose directory AERON_DIR names. */
static aeron_t *connect_client(aeron_context_t **context)
{
    aeron_t *client = NULL;
    signal(SIGINT, on_interrupt);
    if (aeron_context_init(context) < 0 || aeron_init(&client, *context) < 0 ||
        aeron_start(client) < 0)
    {
        fail("client");
    }
    return client;
}

#endif
