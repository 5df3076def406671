"""Every kind of channel, and the URI that stands for it."""

from __future__ import annotations

import aeron_async as aa

# One receiver.
print(aa.Channel.udp("10.0.0.5:20121"))
print(aa.Channel.udp("10.0.0.5:20121", control="10.0.0.7:20122", term_length="1m"))

# A group of the network.
print(aa.Channel.multicast("224.20.30.39:20121", interface="10.0.0.0/8", ttl=4))
print(aa.Channel.multicast("224.20.30.39:20121", fc=aa.Fc.tagged(101, size=2, timeout="2s")))
print(aa.Channel.multicast("224.20.30.39:20121", gtag=101))

# Several receivers, one by one.
print(aa.Channel.mdc_publisher("10.0.0.7:20122", fc=aa.Fc.min(timeout="2s")))
print(aa.Channel.mdc_subscriber("10.0.0.5:0", "10.0.0.7:20122"))
print(aa.Channel.mdc_publisher(mode="manual"))

# Several places to receive at.
print(aa.Channel.mds())

# Responses to the client that sent the request.
print(aa.Channel.response("10.0.0.7:20122", endpoint="10.0.0.5:0"))
print(aa.Channel.udp("10.0.0.7:20121", response_correlation_id=7))
print(aa.Channel.response("10.0.0.7:20122", correlation_id=9))

# Within one driver.
print(aa.Channel.ipc(term_length="64k"))
print(aa.Channel.spy(aa.Channel.udp("10.0.0.5:20121")))
