from aeron_async.kernel.chains import scan_chain as scan_chain
