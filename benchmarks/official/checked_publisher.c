/*
 * Publisher over the official C client that yields, then sleeps, while a message is not accepted.
 *
 * Build both programs against an installed client, in this folder:
 *
 *   for each in publisher subscriber; do cc -O2 -I"$AERON_INCLUDE" -L"$AERON_LIB" \
 *     -Wl,-rpath,"$AERON_LIB" -o "$AERON_BIN/checked_$each" checked_$each.c -laeron; done
 *
 * It prints `STATS messages=... seconds=...` once the last message is accepted; the time begins
 * with the first. The driver delivers the rest when the program has ended.
 */
#include "checked.h"

static aeron_exclusive_publication_t *add_publication(aeron_t *client, const plan_t *plan)
{
    aeron_async_add_exclusive_publication_t *adding = NULL;
    aeron_exclusive_publication_t *publication = NULL;
    waiting_t waiting = {0};
    if (aeron_async_add_exclusive_publication(&adding, client, plan->channel, plan->stream_id) < 0)
    {
        fail("publication");
    }
    while (NULL == publication)
    {
        if (aeron_async_add_exclusive_publication_poll(&publication, adding) < 0)
        {
            fail("publication");
        }
        if (NULL == publication)
        {
            wait_for(&waiting, plan, "publication");
        }
    }
    return publication;
}

static void offer(
    aeron_exclusive_publication_t *publication,
    const plan_t *plan,
    const uint8_t *message,
    size_t length)
{
    waiting_t waiting = {0};
    while (true)
    {
        const int64_t position =
            aeron_exclusive_publication_offer(publication, message, length, NULL, NULL);
        if (position >= 0)
        {
            return;
        }
        if (AERON_PUBLICATION_CLOSED == position || AERON_PUBLICATION_ERROR == position ||
            AERON_PUBLICATION_MAX_POSITION_EXCEEDED == position)
        {
            fail("offer");
        }
        wait_for(&waiting, plan, "room for a message");
    }
}

int main(int argc, char **argv)
{
    const plan_t plan = plan_from(argc, argv);
    const uint8_t *pattern = make_pattern(&plan);
    uint8_t *message = malloc(plan.maximum + 1);
    if (NULL == message)
    {
        perror("malloc");
        return EXIT_FAILURE;
    }
    aeron_context_t *context = NULL;
    aeron_t *client = connect_client(&context);
    aeron_exclusive_publication_t *publication = add_publication(client, &plan);
    double started_s = now_s();
    for (uint64_t k = 0; k < plan.count && !is_interrupted; k++)
    {
        const size_t length = length_of(&plan, k);
        memcpy(message, body_of(pattern, k), length);
        if (length >= NUMBER_LENGTH)
        {
            put_number(message, k);
        }
        offer(publication, &plan, message, length);
        if (0 == k)
        {
            started_s = now_s();
        }
    }
    const double elapsed_s = now_s() - started_s;
    if (is_interrupted)
    {
        fprintf(stderr, "interrupted\n");
        return EXIT_FAILURE;
    }
    printf("STATS messages=%" PRIu64 " seconds=%.6f\n", plan.count, elapsed_s);
    fflush(stdout);
    aeron_exclusive_publication_close(publication, NULL, NULL);
    aeron_close(client);
    aeron_context_close(context);
    return EXIT_SUCCESS;
}
