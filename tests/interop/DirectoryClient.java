import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Publication;
import io.aeron.Subscription;
import org.agrona.concurrent.UnsafeBuffer;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * A Java client of the driver in a directory offers numbered messages, or takes and checks them.
 *
 * Arguments: publish or subscribe, directory, channel, stream id, number of messages.
 */
public final class DirectoryClient
{
    private static final int MINIMUM = 8;
    private static final int SPAN = 4000 - MINIMUM + 1;
    private static final long DEADLINE_NS = TimeUnit.SECONDS.toNanos(600);

    private static int next;

    public static void main(final String[] args)
    {
        final int streamId = Integer.parseInt(args[3]);
        final int count = Integer.parseInt(args[4]);
        try (Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(args[1])))
        {
            if ("publish".equals(args[0]))
            {
                publish(aeron, args[2], streamId, count);
            }
            else
            {
                subscribe(aeron, args[2], streamId, count);
            }
        }
        System.out.println("done");
    }

    private static void publish(
        final Aeron aeron, final String channel, final int streamId, final int count)
    {
        final UnsafeBuffer buffer = new UnsafeBuffer(new byte[4000]);
        try (Publication publication = aeron.addPublication(channel, streamId))
        {
            final long deadlineNs = System.nanoTime() + DEADLINE_NS;
            for (int number = 0; number < count; number++)
            {
                final int length = write(buffer, number);
                while (publication.offer(buffer, 0, length) < 0)
                {
                    await(deadlineNs, "no room for message " + number);
                }
            }
            // The subscriber leaves once it has all.
            System.out.println("offered");
            while (publication.isConnected())
            {
                await(deadlineNs, "the subscriber has not left");
            }
        }
    }

    private static void subscribe(
        final Aeron aeron, final String channel, final int streamId, final int count)
    {
        final UnsafeBuffer expected = new UnsafeBuffer(new byte[4000]);
        try (Subscription subscription = aeron.addSubscription(channel, streamId))
        {
            System.out.println("subscribed");
            final FragmentAssembler handler = new FragmentAssembler((buffer, offset, length, header) ->
            {
                final int expectedLength = write(expected, next);
                for (int i = 0; i < expectedLength; i++)
                {
                    if (length != expectedLength || buffer.getByte(offset + i) != expected.getByte(i))
                    {
                        throw new IllegalStateException("message " + next + " of " + length + " bytes");
                    }
                }
                next++;
            });
            final long deadlineNs = System.nanoTime() + DEADLINE_NS;
            while (next < count)
            {
                if (subscription.poll(handler, 100) == 0)
                {
                    await(deadlineNs, "message " + next + " has not come");
                }
            }
        }
    }

    /** Writes message k: k in little endian, and then 31 k + 7 j at each place j. */
    private static int write(final UnsafeBuffer buffer, final int number)
    {
        final int length = MINIMUM + (int)(7919L * number % SPAN);
        for (int i = 4; i < length; i++)
        {
            buffer.putByte(i, (byte)(31 * number + 7 * i));
        }
        buffer.putInt(0, number);
        return length;
    }

    private static void await(final long deadlineNs, final String what)
    {
        if (System.nanoTime() > deadlineNs)
        {
            throw new IllegalStateException(what);
        }
        LockSupport.parkNanos(50_000);
    }
}
