from aeron_async.kernel.paths import NOTHING as NOTHING
from aeron_async.kernel.paths import Cell as Cell
from aeron_async.kernel.paths import Doorbell as Doorbell
from aeron_async.kernel.paths import HomeLoop as HomeLoop
from aeron_async.kernel.paths import Offering as Offering
from aeron_async.kernel.paths import Reading as Reading
from aeron_async.kernel.paths import Taking as Taking
from aeron_async.kernel.paths import inheriting as inheriting
