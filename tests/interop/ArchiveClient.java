import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Subscription;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.ArchiveException;
import io.aeron.archive.codecs.SourceLocation;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import org.agrona.concurrent.UnsafeBuffer;

import java.util.concurrent.TimeUnit;

/**
 * The official client drives an archive, and says what it finds, one line for each thing.
 *
 * Arguments: control channel, channel to record, directory of the driver, number of messages, and,
 * if there is a driver in that directory already, the channel of responses and replays.
 */
public final class ArchiveClient
{
    private static final int STREAM_ID = 2001;
    private static final long DEADLINE_NS = TimeUnit.SECONDS.toNanos(20);

    public static void main(final String[] args)
    {
        final String channel = args[1];
        final int count = Integer.parseInt(args[3]);
        final MediaDriver.Context context = new MediaDriver.Context()
            .aeronDirectoryName(args[2])
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true)
            .termBufferSparseFile(true)
            .publicationTermBufferLength(64 * 1024)
            .threadingMode(ThreadingMode.SHARED);
        final boolean isShared = args.length > 4;
        final String responses = isShared ? args[4] : "aeron:udp?endpoint=localhost:0";
        try (MediaDriver driver = isShared ? null : MediaDriver.launch(context);
            Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(args[2]));
            AeronArchive archive = AeronArchive.connect(new AeronArchive.Context()
                .aeron(aeron)
                .controlRequestChannel(args[0])
                .controlResponseChannel(responses)
                .messageTimeoutNs(DEADLINE_NS)))
        {
            say("archive", archive.archiveId());
            final long recordingId = record(aeron, archive, channel, count);
            list(archive, recordingId, channel.substring(6, 9));
            final String replays = isShared ? responses : "aeron:udp?endpoint=localhost:" + freePort();
            replay(aeron, archive, recordingId, count, replays);
            say("truncated", archive.truncateRecording(recordingId, 65536));
            say("stopped", archive.getStopPosition(recordingId));
            say("purged", archive.purgeRecording(recordingId));
            refused(() -> archive.getStartPosition(recordingId));
            refused(() -> archive.stopRecording(channel, STREAM_ID));
            refused(() -> archive.migrateSegments(1, 2));
        }
        say("done", 0);
    }

    private static long record(
        final Aeron aeron, final AeronArchive archive, final String channel, final int count)
    {
        final long subscriptionId =
            archive.startRecording(channel, STREAM_ID, SourceLocation.REMOTE);
        refused(() -> archive.startRecording(channel, STREAM_ID, SourceLocation.REMOTE));
        final int found = archive.listRecordingSubscriptions(
            0, 10, "", STREAM_ID, true, (session, correlation, id, stream, stripped) -> {});
        say("subscriptions", found);
        final UnsafeBuffer buffer = new UnsafeBuffer(new byte[4096]);
        try (ExclusivePublication publication = aeron.addExclusivePublication(channel, STREAM_ID))
        {
            for (int i = 0; i < count; i++)
            {
                buffer.putInt(0, i);
                while (publication.offer(buffer, 0, lengthOf(i)) < 0)
                {
                    Thread.yield();
                }
            }
            final long position = publication.position();
            final long recordingId = recordingOf(archive, channel, publication.sessionId());
            final long deadline = System.nanoTime() + DEADLINE_NS;
            while (archive.getRecordingPosition(recordingId) != position)
            {
                if (System.nanoTime() > deadline)
                {
                    throw new IllegalStateException("not recorded in time");
                }
                Thread.yield();
            }
            say("recorded", position);
            archive.stopRecording(subscriptionId);
            return recordingId;
        }
    }

    private static long recordingOf(
        final AeronArchive archive, final String channel, final int sessionId)
    {
        final long deadline = System.nanoTime() + DEADLINE_NS;
        while (System.nanoTime() < deadline)
        {
            final long found = archive.findLastMatchingRecording(0, channel, STREAM_ID, sessionId);
            if (found >= 0)
            {
                return found;
            }
            Thread.yield();
        }
        throw new IllegalStateException("not recorded at all");
    }

    private static void list(
        final AeronArchive archive, final long recordingId, final String media)
    {
        say("listed", archive.listRecordings(0, 10, ArchiveClient::print));
        say("listed", archive.listRecording(recordingId, ArchiveClient::print));
        say("listed", archive.listRecording(recordingId + 77, ArchiveClient::print));
        say("listed", archive.listRecordingsForUri(0, 1, media, STREAM_ID, ArchiveClient::print));
    }

    private static void print(
        final long controlSessionId, final long correlationId, final long recordingId,
        final long startTimestamp, final long stopTimestamp, final long startPosition,
        final long stopPosition, final int initialTermId, final int segmentFileLength,
        final int termBufferLength, final int mtuLength, final int sessionId, final int streamId,
        final String strippedChannel, final String originalChannel, final String sourceIdentity)
    {
        System.out.println("recording " + recordingId + " " + startPosition + " " + stopPosition +
            " " + streamId + " " + strippedChannel);
    }

    private static void replay(
        final Aeron aeron, final AeronArchive archive, final long recordingId, final int count,
        final String channel)
    {
        final int[] seen = new int[2];
        final long stopPosition = archive.getStopPosition(recordingId);
        try (Subscription subscription = archive.replay(
            recordingId, 0, stopPosition, channel, 2002))
        {
            final io.aeron.FragmentAssembler handler = new io.aeron.FragmentAssembler(
                (buffer, offset, length, header) ->
                {
                    seen[1] += buffer.getInt(offset) == seen[0] && length == lengthOf(seen[0]) ? 1 : 0;
                    seen[0]++;
                });
            final long deadline = System.nanoTime() + DEADLINE_NS;
            while (seen[0] < count && System.nanoTime() < deadline)
            {
                if (subscription.poll(handler, 10) == 0)
                {
                    Thread.yield();
                }
            }
        }
        say("replayed", seen[0]);
        say("right", seen[1]);
    }

    private static int freePort()
    {
        try (java.net.DatagramSocket socket = new java.net.DatagramSocket())
        {
            return socket.getLocalPort();
        }
        catch (final java.net.SocketException error)
        {
            throw new IllegalStateException(error);
        }
    }

    private static int lengthOf(final int number)
    {
        return 4 + number * 37 % 3000;
    }

    private static void refused(final Runnable request)
    {
        try
        {
            request.run();
            say("not refused", 0);
        }
        catch (final ArchiveException error)
        {
            System.out.println("refused " + error.errorCode() + " " + error.getMessage());
        }
    }

    private static void say(final String what, final long value)
    {
        System.out.println(what + " " + value);
    }
}
