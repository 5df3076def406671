/*
 * Subscriber over the official C client that compares every byte of every message.
 *
 * It yields, then sleeps, while there is none; how to build it is in checked_publisher.c. It prints
 * `SUBSCRIBED` to standard error when messages may come, and `OK COUNT messages, ...` after the
 * last one. A message that is not the one due ends it with a line that says where it differs.
 */
#include "checked.h"

typedef struct
{
    const plan_t *plan;
    const uint8_t *pattern;
    uint64_t count;
    uint64_t byte_count;
}
progress_t;

static void refuse(const progress_t *progress, const uint8_t *data, size_t length, size_t due)
{
    const uint8_t *body = body_of(progress->pattern, progress->count);
    uint8_t number[NUMBER_LENGTH];
    size_t j = 0;
    put_number(number, progress->count);
    while (j < length && j < due &&
        data[j] == (due >= NUMBER_LENGTH && j < NUMBER_LENGTH ? number[j] : body[j]))
    {
        j++;
    }
    fprintf(
        stderr,
        "message %" PRIu64 ": %zu bytes instead of %zu, different from byte %zu\n",
        progress->count,
        length,
        due,
        j);
    exit(EXIT_FAILURE);
}

static void on_message(void *clientd, const uint8_t *data, size_t length, aeron_header_t *header)
{
    (void)header;
    progress_t *progress = clientd;
    const uint64_t k = progress->count;
    if (k == progress->plan->count)
    {
        fprintf(stderr, "a message after the last, of %zu bytes\n", length);
        exit(EXIT_FAILURE);
    }
    const size_t due = length_of(progress->plan, k);
    size_t from = 0;
    bool is_due = length == due;
    if (is_due && due >= NUMBER_LENGTH)
    {
        uint8_t number[NUMBER_LENGTH];
        put_number(number, k);
        is_due = 0 == memcmp(data, number, NUMBER_LENGTH);
        from = NUMBER_LENGTH;
    }
    if (!is_due || 0 != memcmp(data + from, body_of(progress->pattern, k) + from, due - from))
    {
        refuse(progress, data, length, due);
    }
    progress->count++;
    progress->byte_count += length;
}

static aeron_subscription_t *add_subscription(aeron_t *client, const plan_t *plan)
{
    aeron_async_add_subscription_t *adding = NULL;
    aeron_subscription_t *subscription = NULL;
    waiting_t waiting = {0};
    if (aeron_async_add_subscription(
        &adding, client, plan->channel, plan->stream_id, NULL, NULL, NULL, NULL) < 0)
    {
        fail("subscription");
    }
    while (NULL == subscription)
    {
        if (aeron_async_add_subscription_poll(&subscription, adding) < 0)
        {
            fail("subscription");
        }
        if (NULL == subscription)
        {
            wait_for(&waiting, plan, "subscription");
        }
    }
    return subscription;
}

int main(int argc, char **argv)
{
    enum { FRAGMENT_LIMIT = 256 };
    const plan_t plan = plan_from(argc, argv);
    progress_t progress = {.plan = &plan, .pattern = make_pattern(&plan)};
    aeron_context_t *context = NULL;
    aeron_fragment_assembler_t *assembler = NULL;
    aeron_t *client = connect_client(&context);
    aeron_subscription_t *subscription = add_subscription(client, &plan);
    if (aeron_fragment_assembler_create(&assembler, on_message, &progress) < 0)
    {
        fail("fragment assembler");
    }
    fprintf(stderr, "SUBSCRIBED\n");
    waiting_t waiting = {0};
    double started_s = now_s();
    while (progress.count < plan.count)
    {
        const bool is_first = 0 == progress.count;
        const int fragment_count = aeron_subscription_poll(
            subscription, aeron_fragment_assembler_handler, assembler, FRAGMENT_LIMIT);
        if (fragment_count < 0)
        {
            fail("poll");
        }
        if (fragment_count > 0)
        {
            waiting.idle_count = 0;
        }
        else
        {
            wait_for(&waiting, &plan, "message");
        }
        if (is_first && progress.count > 0)
        {
            started_s = now_s();
        }
    }
    printf(
        "OK %" PRIu64 " messages, bytes=%" PRIu64 " seconds=%.6f\n",
        progress.count,
        progress.byte_count,
        now_s() - started_s);
    fflush(stdout);
    aeron_subscription_close(subscription, NULL, NULL);
    aeron_close(client);
    aeron_context_close(context);
    aeron_fragment_assembler_delete(assembler);
    return EXIT_SUCCESS;
}
