from aeron_async.kernel.batch import Batch as Batch
from aeron_async.kernel.batch import open_batch as open_batch
